"""What a follower of a Raft group says to its leader about the log."""
from libc.stdint cimport uint64_t

from gnats.core.runtime.slice cimport Slice
from gnats.raft.state cimport Raft, RaftSend

cdef void answer(
    Raft *r, RaftSend to, const Slice *subject, uint64_t term, uint64_t index, bint success) noexcept nogil
# Say that the last record is stored, once it is.
cdef void answer_when_durable(Raft *r, const Slice *subject) noexcept nogil
# Send the answers that waited for records that are durable now.
cdef void send_answers(Raft *r) noexcept nogil
