"""The deadlines of a consumer; see consumertimers.pxd."""
from libc.stdint cimport INT64_MAX, int64_t

from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.clock cimport monotonic_ns
from gnats.includes.atomics cimport exchange8, load8
from gnats.includes.times cimport time_after, time_before
from gnats.includes.units cimport SECOND
from gnats.jetstream.consumer.consumerpull cimport process_waiting, send_idle_heartbeat
from gnats.jetstream.consumer.consumerstate cimport (
    CONSUMER_INACTIVE,
    CONSUMER_UNPAUSED,
    CONSUMER_UNPINNED,
    ConsumerState,
    notify,
)
from gnats.jetstream.consumer.flowcontrol cimport flow_request
from gnats.jetstream.consumer.pending cimport QUEUED, DeliveredMsg, pending_earliest, pending_first, pending_next
from gnats.jetstream.consumer.pinning cimport unassign_pin
from gnats.jetstream.consumer.redelivery cimport check_pending
from gnats.jetstream.consumer.send_queue cimport outq_status
from gnats.jetstream.consumer.settings cimport POLICY_FLOW_CONTROL, has_ack_wait, wait_of

cdef enum:
    ACK_DELAY = 1000000        # ns by which the timer of ack waits is late, so that it serves several at once


cdef void timers_due(ConsumerState o, PollState *ps, int64_t wall) noexcept nogil:
    cdef int64_t now = ps.now
    check_pending(o, wall)
    if o.pause_at and o.pause_at <= now:
        if o.cfg.pause_until > wall:
            # The pause ends by the wall clock, which is behind: slightly, or because it was set back.
            o.pause_at = time_after(now, time_before(o.cfg.pause_until, wall))
        else:
            o.pause_at = 0
            notify(o, CONSUMER_UNPAUSED, 0, 0, 0, 0, NULL, 0)
    if o.pin.ends_at and o.pin.ends_at <= now:
        unassign_pin(&o.pin)
        notify(o, CONSUMER_UNPINNED, 0, 0, 0, 0, NULL, 0)
    if o.heartbeat_at and o.heartbeat_at <= now:
        if o.active:
            send_idle_heartbeat(o, o.dsubj, o.dsubj_n)
            if o.cfg.ack_policy == POLICY_FLOW_CONTROL and o.stored.pending.n and o.flow.fcid_n == 0:
                send_flow_control(o, ps)
        o.heartbeat_at = time_after(now, o.cfg.heartbeat)
    if o.cfg.push and exchange8(&o.recheck, 0):
        # Another thread may have removed the interest after this batch began: count from now.
        update_delivery_interest(o, listened_to(o), monotonic_ns())
    if o.inactive_at and o.inactive_at <= now:
        delete_not_active(o, now, wall)


cdef inline int64_t earlier(int64_t a, int64_t b) noexcept nogil:
    """Return the earlier of two deadlines, where 0 is none."""
    return b if a == 0 or (b and b < a) else a


cdef void arm_timer(ConsumerState o, PollState *ps, int64_t wall) noexcept nogil:
    cdef int64_t when = 0
    cdef DeliveredMsg *e = pending_earliest(&o.stored.pending)
    if e != NULL and e.deadline != INT64_MAX and has_ack_wait(&o.cfg):
        when = time_after(ps.now, time_after(max(time_before(e.deadline, wall), <int64_t> 0), ACK_DELAY))
    when = earlier(when, o.waiting.due)
    when = earlier(when, o.inactive_at)
    when = earlier(when, o.heartbeat_at)
    when = earlier(when, o.pin.ends_at)
    when = earlier(when, o.pause_at)
    if o.held_until > ps.now:
        when = earlier(when, o.held_until)
    if when and (o.armed == 0 or when < o.armed):
        o.armed = when
        o.engine.arm(&o.timer, when)


cdef void send_flow_control(ConsumerState o, PollState *ps) noexcept nogil:
    if not o.cfg.push:
        return
    flow_request(&o.flow, ps)
    outq_status(&o.out, o.dsubj, o.dsubj_n, o.flow.fcid, o.flow.fcid_n, b"100 FlowControl Request", b"")


# -- interest and inactivity -------------------------------------------------------------------------------------------

cdef bint listened_to(ConsumerState o) noexcept nogil:
    """Return whether the deliver subject has a subscriber."""
    if o.failed:
        # A message has found no subscriber although interest was reported: match the deliver subject itself.
        o.failed = False
        return o.stream.account.sublist.has_interest(o.dsubj, o.dsubj_n)
    return load8(&o.listeners) != 0


cdef void update_delivery_interest(ConsumerState o, bint interest, int64_t now) noexcept nogil:
    o.active = interest
    if interest:
        o.inactive_at = 0
    elif o.cfg.inactive and o.inactive_at == 0:
        o.inactive_at = time_after(now, o.cfg.inactive)


cdef void delete_not_active(ConsumerState o, int64_t now, int64_t wall) noexcept nogil:
    """The inactive threshold has passed: have the control plane delete the consumer, unless it is used."""
    cdef DeliveredMsg *e
    cdef int64_t until = 0
    o.inactive_at = 0
    if o.cfg.push:
        if not o.active and not notify(o, CONSUMER_INACTIVE, 0, 0, 0, 0, NULL, 0):
            o.inactive_at = time_after(now, SECOND)
        return
    if now - o.waiting.last < o.cfg.inactive:
        o.inactive_at = time_after(o.waiting.last, o.cfg.inactive)
        return
    process_waiting(o, True, now)
    if o.waiting.n:
        o.inactive_at = time_after(now, o.cfg.inactive)
        return
    # A client may still be working on a message until its ack wait ends.
    e = pending_first(&o.stored.pending)
    while e != NULL:
        until = max(until, e.deadline if not e.flags & QUEUED else time_after(e.ts, wait_of(&o.cfg, e.rdc)))
        e = pending_next(&o.stored.pending, e)
    until = time_after(until, o.cfg.inactive) if until else 0
    if until > wall:
        o.inactive_at = time_after(now, until - wall)
        return
    if not notify(o, CONSUMER_INACTIVE, 0, 0, 0, 0, NULL, 0):
        o.inactive_at = time_after(now, SECOND)
