"""Store an entry of a stream's log: store, count, answer (the end of processJetStreamMsg in stream.go).

With it go rollups, message ids, timers, consumers, the copy that is published again, and the answer to its publisher
where there is one. The stream's lock is held; what consumers are to be told of removed messages is noted, and told by
StreamCore.leave().
"""
from gnats.jetstream.barrier cimport Local
from gnats.jetstream.entry cimport Entry, Outcome
from gnats.jetstream.streamcore cimport StreamCore


# MSG_STORED, MSG_LIMITED or MSG_REFUSED; `reply` has been told. Of one entry, not of those behind it.
cdef Outcome store_entry(StreamCore s, Local *local, const Entry *e) noexcept nogil
