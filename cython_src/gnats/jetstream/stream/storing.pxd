"""Store an entry of a stream's log: store, count, answer (the end of processJetStreamMsg in stream.go).

This includes rollups, message ids, timers, the counts of consumers, the republished copy, and the answer to the
publisher if there is one. The stream's lock is held. Removed messages are noted; StreamCore.leave() tells consumers.
"""
from gnats.jetstream.engine.barrier cimport Local
from gnats.jetstream.state.entry cimport Entry, Outcome
from gnats.jetstream.state.streamcore cimport StreamCore


# Store one entry, not those linked to it, and answer its reply subject. Returns MSG_STORED, MSG_LIMITED or MSG_REFUSED.
cdef Outcome store_entry(StreamCore s, Local *local, const Entry *e) noexcept nogil
