"""Store proposed entries of a stream at once; see streamlog.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t

from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.clock cimport realtime_ns
from gnats.core.runtime.slice cimport Slice
from gnats.jetstream.engine.barrier cimport JsPoller
from gnats.jetstream.engine.outbox cimport publish_later
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.jetstream.stream.storing cimport apply_change, store_entries
from gnats.store.base cimport STORE_OK
from gnats.store.writing cimport skip_msgs


cdef bint remove_at_once(StreamCore s, uint64_t seq, PollState *ps) noexcept nogil:
    cdef bint gone
    s.enter()
    gone = not s.closed and s.decides and s.store.remove(seq, False) == STORE_OK
    s.leave(ps)
    return gone


cdef bint expire_at_once(StreamCore s, JsPoller *jp, uint64_t seq) noexcept nogil:
    s.store.remove(seq, False)
    return True


cdef int skip_at_once(StreamCore s, JsPoller *jp, uint64_t last) noexcept nogil:
    return skip_msgs(s.store, s.store.last_seq + 1, last - s.store.last_seq, realtime_ns())


cdef void confirm_at_once(StreamCore s, JsPoller *jp, const Slice *reply, const char *hdr, size_t n) noexcept nogil:
    publish_later(jp, s, reply.p, reply.n, hdr, n, NULL, 0, False)


local_log.propose = store_entries
local_log.change = apply_change
local_log.expire = expire_at_once
local_log.skip = skip_at_once
local_log.confirm = confirm_at_once
local_log.drop = remove_at_once
