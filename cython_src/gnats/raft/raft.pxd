"""The Raft state machine of one group, without I/O and without a clock (raft.go).

It is fed with messages, with the time, and with what has become durable; what it wants done it says through the
functions of a RaftEnv, which may be called from any raft_ function that changes state. These functions call none of
the raft_ functions: when an entry or a vote has become durable later, the owner says so by raft_stored() and
raft_saved(). One thread at a time uses a Raft.

An *append entry* is one record of the log, under one index, with the entries of a batch. Differences from nats-server,
none of which its servers can see on the wire but as other timing:
  * a leader sends before it has stored, and counts itself when it has
  * a follower answers when the record is durable, and goes on receiving meanwhile; heartbeats are answered at once, for
    what is durable
  * an answer for an index says that everything up to it is there, so each peer has one number, not each index a set
  * a record that comes again never removes others: only one that differs does
  * the vote of a member that has lost records to damage counts only if all vote, until it has them again
  * nothing that is committed is removed: the group stops instead, and says so
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.core.runtime.slice cimport Slice
from gnats.raft.messages cimport PeerState, Snapshot
from gnats.raft.state cimport Raft, RaftEnv, RaftVia

cdef enum:
    BATCH_BYTES = 256 * 1024   # of entries in a record, and
    BATCH_ENTRIES = 4096       # their number, from which on it is sent

cdef void raft_init(Raft *r, const RaftEnv *env, void *owner, uint64_t id, uint64_t seed) noexcept nogil
cdef void raft_free(Raft *r) noexcept nogil

# Before the first message: what the files say. False: no memory.
cdef bint raft_recover(
    Raft *r, uint64_t term, uint64_t vote, const Snapshot *snapshot, const PeerState *peers) noexcept nogil
# Then each record of the log, in their order. False: it does not continue the log, which must be cut before it.
cdef bint raft_replay(Raft *r, uint64_t index, const char *data, size_t n) noexcept nogil
# Then, if records of the log up to an index were lost to damage, none of a later term than this: the peers count on
# them, so this server helps to elect nobody, itself included, unless all vote, until it knows that it has all that was
# committed (RaftEnv.trusted).
cdef void raft_distrust(Raft *r, uint64_t index, uint64_t term) noexcept nogil
# Then begin. `recovering`: this server has been a member before.
cdef void raft_begin(Raft *r, bint recovering, int64_t now) noexcept nogil

# Messages. `subject` is where their answer goes.
cdef void raft_append_entry(
    Raft *r, RaftVia via, const char *data, size_t n, const Slice *subject, int64_t now) noexcept nogil
cdef void raft_response(Raft *r, const char *data, size_t n, const Slice *subject, int64_t now) noexcept nogil
cdef void raft_vote_request(Raft *r, const char *data, size_t n, const Slice *subject, int64_t now) noexcept nogil
cdef void raft_vote_response(Raft *r, const char *data, size_t n, int64_t now) noexcept nogil

# Records up to an index are durable; term and vote are.
cdef void raft_stored(Raft *r, uint64_t index) noexcept nogil
cdef void raft_saved(Raft *r, int64_t now) noexcept nogil
# What is committed up to an index has been applied.
cdef void raft_applied(Raft *r, uint64_t index) noexcept nogil

# The next time at which raft_tick() has something to do.
cdef int64_t raft_deadline(const Raft *r) noexcept nogil
cdef void raft_tick(Raft *r, int64_t now) noexcept nogil

# Propose an entry: it is in the record that raft_flush() sends, or in one before. False: this server does not lead, or
# too much waits.
cdef bint raft_propose(Raft *r, const char *data, size_t n, int64_t now) noexcept nogil
cdef bint raft_propose_peer(Raft *r, uint64_t peer, bint removes, int64_t now) noexcept nogil
# At the end of a batch: send what has been proposed, or that something is committed.
cdef void raft_flush(Raft *r, int64_t now) noexcept nogil

# Let another peer lead: `preferred`, if it is there, else any that is. 0: no preference.
cdef bint raft_step_down(Raft *r, uint64_t preferred, int64_t now) noexcept nogil
cdef void raft_campaign(Raft *r, int64_t now) noexcept nogil
# So many servers are there: count them as members, unless there has been a leader. Otherwise servers whose
# configuration names few others could elect two.
cdef void raft_expect(Raft *r, uint32_t size) noexcept nogil
cdef void raft_set_observer(Raft *r, bint observer, int64_t now) noexcept nogil
