"""The pin of a priority group; see pinning.pxd."""
from libc.stdint cimport int64_t

from gnats.core.net.pollstate cimport PollState, poller_random
from gnats.core.runtime.clock cimport realtime_ns
from gnats.includes.base62 cimport BASE, DIGITS
from gnats.includes.times cimport time_after


cdef void pin_assign(Pin *pin, PollState *ps, int64_t ttl) noexcept nogil:
    cdef int i
    for i in range(PIN_N):
        pin.id[i] = DIGITS[poller_random(ps) % BASE]
    pin.held = True
    pin.ts = realtime_ns()
    set_pinned_timer(pin, ps.now, ttl)


cdef void unassign_pin(Pin *pin) noexcept nogil:
    pin.held = False
    pin.ts = 0
    pin.ends_at = 0


cdef void set_pinned_timer(Pin *pin, int64_t now, int64_t ttl) noexcept nogil:
    pin.ends_at = time_after(now, ttl)
