"""What a leader sends to followers that catch up: a snapshot if need be, then records, in portions."""
from libc.stdint cimport int64_t

from gnats.core.runtime.slice cimport Slice
from gnats.raft.messages cimport Response
from gnats.raft.state cimport Raft

# Send a follower what it lacks, from where it says that its log ends. False: this server lacks it, too.
cdef bint begin_feeding(Raft *r, const Response *behind, const Slice *inbox, int64_t now) noexcept nogil
# Send each follower that catches up another portion.
cdef void feed_all(Raft *r, int64_t now) noexcept nogil
