"""Store proposed entries of a stream at once; see streamlog.pxd."""
from libc.stdint cimport uint64_t

from gnats.core.net.pollstate cimport PollState
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.jetstream.stream.storing cimport apply_change, store_entries
from gnats.store.base cimport STORE_OK


cdef bint remove_at_once(StreamCore s, uint64_t seq, PollState *ps) noexcept nogil:
    cdef bint gone
    s.enter()
    gone = not s.closed and s.decides and s.store.remove(seq, False) == STORE_OK
    s.leave(ps)
    return gone


local_log.propose = store_entries
local_log.change = apply_change
local_log.drop = remove_at_once
