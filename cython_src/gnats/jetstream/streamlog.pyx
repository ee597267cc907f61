"""The log of a stream on one server; see streamlog.pxd."""
from gnats.jetstream.barrier cimport Local
from gnats.jetstream.entry cimport Entry, Outcome
from gnats.jetstream.storing cimport store_entry
from gnats.jetstream.streamcore cimport StreamCore


cdef Outcome store_at_once(StreamCore s, Local *local, const Entry *e) noexcept nogil:
    cdef Outcome outcome = store_entry(s, local, e)
    while e.next != NULL:
        e = e.next
        outcome = store_entry(s, local, e)
    return outcome


local_log.propose = store_at_once
