"""PING and PONG between the server and a peer; see pings.pxd."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.net.connection cimport STALE_CONNECTION, queue_text
from gnats.core.net.connectionbase cimport trace_verb
from gnats.core.net.log_records cimport LOG_PING_DELAYED, LOG_PING_TIMER, LOG_STALE, TRACE_IN, TRACE_OUT
from gnats.core.net.pollstate cimport poller_random
from gnats.core.protocol.answers cimport send_err
from gnats.core.routing.gateway_reply cimport sweep_replies
from gnats.core.runtime.kinds cimport CLIENT
from gnats.core.runtime.timers cimport timer_clear
from gnats.includes.atomics cimport add64, load8, storei64
from gnats.includes.times cimport time_after, times
from gnats.includes.units cimport SECOND

cdef int64_t FIRST_PING = 2 * SECOND
cdef int64_t FIRST_PING_OF_LINK = SECOND
cdef int64_t RTT_INTERVAL = 3600 * SECOND


cdef void start_ping_timer(Subscriber c, Pings *p) noexcept nogil:
    if p.interval > 0:
        c.set_timer(&p.timer, p.interval)


cdef void set_ping_limits(Subscriber c, Pings *p, int64_t interval, int32_t max) noexcept nogil:
    p.max = max
    if p.interval != interval:
        p.interval = interval
        timer_clear(&c.ps.timers, &p.timer)
        start_ping_timer(c, p)


cdef void set_first_ping_timer(Subscriber c, Pings *p) noexcept nogil:
    cdef int64_t d = p.interval
    if c.kind == CLIENT:
        storei64(&c.rtt, c.ps.now - c.start_time if c.ps.now > c.start_time else 1)
    if d <= 0:
        return
    d = min(d, FIRST_PING if c.kind == CLIENT else FIRST_PING_OF_LINK)
    d = time_after(d, <int64_t> (poller_random(c.ps) % 1000) * (d // 5000))
    timer_clear(&c.ps.timers, &p.timer)
    c.set_timer(&p.timer, d)


cdef void set_settling_timer(Subscriber c, Pings *p) noexcept nogil:
    if p.interval > 0:
        c.set_timer(&p.timer, times(p.interval, <int64_t> p.max + 1))


cdef void process_ping_timer(Subscriber c, Pings *p) noexcept nogil:
    cdef int64_t now = c.ps.now
    # The monotonic clock begins when the machine starts: 0 is not long ago then.
    cdef bint need_rtt = c.rtt == 0 or p.rtt_start == 0 or now - p.rtt_start > RTT_INTERVAL
    cdef int64_t quiet = now - c.last_in if c.last_in else INT64_MAX
    c.debugf(LOG_PING_TIMER, 0, NULL, 0)
    sweep_replies(c)
    if quiet < p.interval and not need_rtt and c.kind == CLIENT:
        c.debugf(LOG_PING_DELAYED, quiet, NULL, 0)
    else:
        if c.kind != CLIENT and c.last_in > p.rtt_start:
            p.out = 0   # the peer lives; its PONG may wait behind what it sends
        if p.out + 1 > p.max:
            close_stale(c)
            return
        send_ping(c, p)
    if not load8(&c.closing):
        start_ping_timer(c, p)


cdef void close_stale(Subscriber c) noexcept nogil:
    c.debugf(LOG_STALE, 0, NULL, 0)
    send_err(c, b"Stale Connection")
    add64(&c.server._stale_connections, 1)
    c.close_connection_nogil(STALE_CONNECTION)


cdef void send_ping(Subscriber c, Pings *p) noexcept nogil:
    p.rtt_start = c.ps.now
    p.out += 1
    if c.trace:
        trace_verb(c, TRACE_OUT, b"PING")
    if c.kind == CLIENT:
        queue_text(c, b"PING\r\n")
    else:
        c.queue_control(b"PING\r\n")


cdef void pong_received(Subscriber c, Pings *p) noexcept nogil:
    if c.trace:
        trace_verb(c, TRACE_IN, b"PONG")
    p.out = 0
    if p.rtt_start:
        storei64(&c.rtt, c.ps.now - p.rtt_start if c.ps.now > p.rtt_start else 1)
