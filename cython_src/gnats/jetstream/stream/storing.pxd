"""Apply what a stream's log holds: store, count, answer (the end of processJetStreamMsg in stream.go); delete, purge.

An entry is stored in two parts. The first, apply_entry(), stores the message and remembers its id. The second,
finish_entry(), does the rollup, and then the work of this server alone: its timers, its consumers, the republished
copy, the answer to the publisher. Each entry of an atomic batch goes through the first part before any goes through the
second, so a batch that cannot be stored whole is taken back without a trace. The first part and the rollup change the
stream. They depend on the entry and the stream alone, so their outcome is the same on each server that has the log.

The stream's lock is held. Removed messages are noted; StreamCore.leave() notifies consumers.
"""
from libc.stdint cimport uint64_t

from gnats.jetstream.engine.barrier cimport JsPoller
from gnats.jetstream.state.entry cimport Outcome, StreamChange, StreamEntry
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.store.removing cimport Purge


# Answer the publisher of an entry that is stored as `seq`.
cdef void answer(StreamCore s, JsPoller *jp, const StreamEntry *e, uint64_t seq) noexcept nogil
# Store an entry and those linked to it, all or none, and answer the reply subject. Return MSG_STORED, MSG_LIMITED or
# MSG_REFUSED.
cdef Outcome store_entries(StreamCore s, JsPoller *jp, StreamEntry *e) noexcept nogil
# Make a change. Return a StoreError. A large purge is made in parts: STORE_AGAIN says that there is more to do. Its
# place in the log is that of the first part: messages stored after that stay. `part`: how far a purge is; set
# part.begun to False before. For other operations it may be NULL.
cdef int apply_change(StreamCore s, const StreamChange *c, Purge *part) noexcept nogil
