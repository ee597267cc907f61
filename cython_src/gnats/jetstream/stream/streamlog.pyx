"""The log of a stream on one server; see streamlog.pxd."""
from gnats.jetstream.engine.barrier cimport Local
from gnats.jetstream.state.entry cimport Entry, Outcome
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.jetstream.stream.storing cimport store_entry


cdef Outcome store_at_once(StreamCore s, Local *local, const Entry *e) noexcept nogil:
    cdef Outcome outcome = store_entry(s, local, e)
    while e.next != NULL:
        e = e.next
        outcome = store_entry(s, local, e)
    return outcome


local_log.propose = store_at_once
