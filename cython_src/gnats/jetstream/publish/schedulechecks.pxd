"""Check the headers of a schedule, or of a message that ends one (stream.go, jetstream_batching.go)."""
from libc.stdint cimport int64_t

from gnats.core.runtime.slice cimport Slice
from gnats.jetstream.publish.inbound cimport Inbound
from gnats.jetstream.publish.inflight cimport InFlight
from gnats.jetstream.publish.refusal cimport Refusal
from gnats.jetstream.state.headers cimport H_SCHEDULE, H_SCHEDULE_TIME_ZONE, MsgHeaders, has_header
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.store.times.cron cimport Due, ScheduleKind, next_due


# Check a message's headers about schedules. A schedule gets the rollup that it must have. The stream's lock is held.
cdef bint check_schedule(StreamCore s, Inbound *m, const InFlight *f, Refusal *r) noexcept nogil


cdef inline Slice value_of(const MsgHeaders *h, int which) noexcept nogil:
    """Return the value of a header line; p is NULL when the header has none."""
    cdef Slice none
    none.p = NULL
    none.n = 0
    return h.values[which] if has_header(h, which) else none


cdef inline ScheduleKind kind_of(const MsgHeaders *h, int64_t ts, int64_t now, Due *due) noexcept nogil:
    cdef Slice pattern = value_of(h, H_SCHEDULE), zone = value_of(h, H_SCHEDULE_TIME_ZONE)
    return next_due(pattern.p, pattern.n, zone.p, zone.n, ts, now, due)
