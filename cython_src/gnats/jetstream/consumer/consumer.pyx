"""A consumer (consumer.go): the calls of the control plane.

They are methods of one class, above the parts of a consumer that they use; consumerstate.pxd names these.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.subscriptions cimport unsubscribe
from gnats.core.messages.message cimport MessageHandler
from gnats.core.runtime.clock cimport monotonic_ns, realtime_ns
from gnats.core.runtime.const cimport MAX_PAYLOAD_SIZE
from gnats.core.subjects.sublist cimport Subscription
from gnats.includes.atomics cimport exchange8, load8, store8, store64
from gnats.includes.pthread cimport (
    pthread_mutex_lock,
    pthread_mutex_unlock,
    pthread_rwlock_rdlock,
    pthread_rwlock_unlock,
)
from gnats.includes.times cimport time_after, time_before
from gnats.includes.units cimport MILLISECOND, SECOND
from gnats.jetstream.consumer.consumeracks cimport on_ack, on_flow_control
from gnats.jetstream.consumer.consumerdelivery cimport on_kicked, on_run, on_timer
from gnats.jetstream.consumer.consumerentry cimport OP_FORGOTTEN, OP_MOVED, OP_RESET
from gnats.jetstream.consumer.consumerlog cimport local_consumer_log
from gnats.jetstream.consumer.consumerpull cimport on_request, process_waiting
from gnats.jetstream.consumer.consumerstate cimport (
    ConsumerState,
    Notice,
    begin_at,
    kick,
    mark_dirty,
    num_pending,
    on_kick,
    on_stored,
    propose_of,
    propose_position,
    select_starting_seq,
    stream_num_pending,
    wake,
)
from gnats.jetstream.consumer.consumertimers cimport update_delivery_interest
from gnats.jetstream.consumer.flowcontrol cimport flow_init, flow_start
from gnats.jetstream.consumer.pending cimport (
    DeliveredMsg,
    pending_first,
    pending_last,
    pending_next,
    pending_set_deadline,
)
from gnats.jetstream.consumer.pinning cimport PIN_N, unassign_pin
from gnats.jetstream.consumer.redelivery cimport force_expire_pending
from gnats.jetstream.consumer.removals cimport on_count_off, on_need_ack, on_purged, on_removed
from gnats.jetstream.consumer.requests cimport WaitingRequest, waitq_free
from gnats.jetstream.consumer.send_queue cimport outq_cut, outq_ended, outq_status
from gnats.jetstream.consumer.settings cimport POLICY_FLOW_CONTROL, POLICY_NONE, ConsumerSettings, wait_of
from gnats.jetstream.consumer.stored cimport stored_restore, stored_snapshot
from gnats.jetstream.engine.consumerbase cimport ConsumerType
from gnats.jetstream.engine.nativesubs cimport subscribe_native
from gnats.jetstream.state.streamcore cimport INTEREST_POLICY, LIMITS_POLICY, StreamCore, remove_unneeded
from gnats.store.format.codec cimport (
    ConsumerSnapshot,
    consumer_bound,
    consumer_decode,
    consumer_encode,
    consumer_free,
)
from gnats.store.index.filter cimport Filter, filter_free, filter_make

import random


from gnats.go.text import duration
from gnats.go.times import unix_ns
from gnats.nkeys.identity import server_hash

ACK_POLICIES = {"none": 0, "all": 1, "explicit": 2, "flow_control": 3}
DELIVER_POLICIES = {
    "all": 0, "last": 1, "last_per_subject": 2, "new": 3, "by_start_sequence": 4, "by_start_time": 5,
}
PRIORITY_POLICIES = {"": 0, "none": 0, "overflow": 1, "pinned_client": 2, "prioritized": 3}
INACTIVE_DEFAULT = 5 * SECOND
"""ns after which an unused ephemeral consumer is deleted."""


class ResetError(ValueError):
    """A consumer cannot be reset to a sequence; the text is nats-server's."""


cdef ConsumerType CONSUMER
CONSUMER.stored = on_stored
CONSUMER.run = on_run
CONSUMER.kick = on_kick
CONSUMER.count_off = on_count_off
CONSUMER.removed = on_removed
CONSUMER.purged = on_purged
CONSUMER.need_ack = on_need_ack


cdef class Consumer(ConsumerState):
    """A consumer of a stream. For the control loop's thread, unless a method says otherwise.

    `config`: a checked gnats.jetstream.settings.config.ConsumerConfig. `account`: the account's name. `domain`,
    `reply_v2`: the form of reply subjects. `state`: where to go on (bytes of an o.dat, unsealed); without it, begin
    where the configuration says. `burst`: bytes of the rate limit's burst where the stream has no max_msg_size.
    `created`: ns since 1970, 0 for now. `replicated`: a group has decided about the state, of which the stream may have
    less here for now. It delivers nothing before start().

    It posts EV_JETSTREAM events to the control poller's inbox: `a` is a ConsumerEvent, the data is for notice(). Raises
    ValueError for a state that cannot be decoded, MemoryError.
    """

    def __cinit__(self, *args, **kwargs):
        self.type = &CONSUMER
        self.log = &local_consumer_log
        self.timer.fn = on_timer
        self.kicker.fn = on_kicked

    def __init__(
        self,
        StreamCore stream not None,
        str name not None,
        config not None,
        *,
        str account not None,
        str domain="",
        bint reply_v2=False,
        bytes state=None,
        int64_t burst=MAX_PAYLOAD_SIZE,
        int64_t created=0,
        bint replicated=False,
    ):
        cdef bytes names = stream.name.encode() + b"." + name.encode()
        cdef bytes v2 = f"{domain or '_'}.{server_hash(account)}.".encode() + names
        cdef bytes fc_prefix = b"$JS.FC." + (v2 if reply_v2 else names) + b"."
        cdef ConsumerSettings cfg
        if created:
            self.created = created
        self.subs = []
        self.ack_prefix = b"$JS.ACK." + (v2 if reply_v2 else names)
        self.ack_prefix_p = PyBytes_AS_STRING(self.ack_prefix)
        self.ack_prefix_n = PyBytes_GET_SIZE(self.ack_prefix)
        if not flow_init(&self.flow, PyBytes_AS_STRING(fc_prefix), PyBytes_GET_SIZE(fc_prefix)):
            raise MemoryError
        self.burst = burst
        memset(&cfg, 0, sizeof(cfg))
        read_settings(self, config, &cfg)
        self.cfg = cfg
        self.pace.tokens = cfg.burst
        self.pace.tokens_at = monotonic_ns()
        self.waiting.max = cfg.max_waiting
        self.waiting.last = self.pace.tokens_at
        set_filter(self, config)
        self.config = config
        if cfg.flow_control:
            flow_start(&self.flow)
        self.names = (names, v2)
        self.dirty = True   # no CONSUMER_DIRTY is posted before start()
        if state is not None:
            self.restore(state, replicated=replicated)
        elif not select_starting_seq(
            self, DELIVER_POLICIES[config.deliver_policy], config.opt_start_seq, unix_ns(config.opt_start_time)
        ):
            raise MemoryError

    def __repr__(self) -> str:
        return f"<Consumer {self.stream.name!r} > {self.name!r}>"

    # -- settings ------------------------------------------------------------------------------------------------------

    def configure(self, config not None) -> None:
        """Apply a checked ConsumerConfig that may replace the present one. Raises MemoryError."""
        cdef ConsumerSettings cfg
        cdef ConsumerSettings before
        cdef int64_t now = monotonic_ns(), wall = realtime_ns()
        cdef DeliveredMsg *e
        cdef bint filtered = filter_subjects(config) != filter_subjects(self.config)
        memset(&cfg, 0, sizeof(cfg))
        read_settings(self, config, &cfg)
        if filtered:
            set_filter(self, config)
        if config.deliver_subject != self.config.deliver_subject:
            pthread_mutex_lock(&self.lock)
            force_expire_pending(self, wall)
            pthread_mutex_unlock(&self.lock)
            set_deliver_subject(self, config)
        pthread_mutex_lock(&self.lock)
        before = self.cfg
        self.cfg = cfg
        e = pending_first(&self.stored.pending)
        while e != NULL:
            pending_set_deadline(&self.stored.pending, e, time_after(e.ts, wait_of(&self.cfg, e.rdc)))
            e = pending_next(&self.stored.pending, e)
        if config.inactive_threshold != self.config.inactive_threshold:
            self.inactive_at = time_after(now, cfg.inactive) if cfg.inactive else 0
        else:
            self.cfg.inactive = before.inactive   # keep its jitter
        if cfg.pause_until != before.pause_until:
            self.pause_at = time_after(now, cfg.pause_until - wall) if cfg.pause_until > wall else 0
        if filtered:
            stream_num_pending(self)
        pthread_mutex_unlock(&self.lock)
        free(before.backoff)
        self.config = config
        kick(self)

    # -- its life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Add the consumer to its stream, subscribe, and deliver from now on. Raises MemoryError.

        Posts no CONSUMER_DIRTY for the initial state, unless restore() had to change it. Delivers when the control loop
        has come round, so the consumer's creator has the answer, with the initial state, before the first message.
        """
        cdef int64_t now = monotonic_ns(), wall = realtime_ns()
        names, v2 = self.names
        store64(&self.ahead, self.sseq)   # what is removed below it may be pending, if the state was restored
        self.stream.add_consumer(self)
        if self.cfg.push:
            set_deliver_subject(self, self.config)
        pthread_mutex_lock(&self.lock)
        stream_num_pending(self)
        if self.cfg.replay_original:
            self.pace.replay = True
            self.pace.replay_end = self.store.last_seq
        if self.cfg.heartbeat:
            self.heartbeat_at = time_after(now, self.cfg.heartbeat)
        if self.cfg.pause_until > wall:
            self.pause_at = time_after(now, self.cfg.pause_until - wall)
        if self.cfg.push:
            update_delivery_interest(self, load8(&self.listeners) != 0, now)
        if self.cfg.inactive and (not self.cfg.push or not self.active):
            self.inactive_at = time_after(now, self.cfg.inactive)
        self.started = True
        self.dirty = False
        if self.reconciled:
            mark_dirty(self)
        pthread_mutex_unlock(&self.lock)
        if self.cfg.ack_policy != POLICY_NONE and self.cfg.ack_policy != POLICY_FLOW_CONTROL:
            subscribe(self, b"$JS.ACK." + names + b".*.*.*.*.*", on_ack)
            subscribe(self, b"$JS.ACK." + v2 + b".*.*.*.*.>", on_ack)
        subscribe(self, b"$JS.API.CONSUMER.MSG.NEXT." + names, on_request)
        if self.cfg.flow_control:
            subscribe(self, b"$JS.FC." + names + b".*", on_flow_control)
            subscribe(self, b"$JS.FC." + v2 + b".*", on_flow_control)
        kick(self)

    def close(self, *, bint deleted=False, bint follows=False) -> None:
        """Leave the stream. Idempotent. With `deleted`, answer the waiting requests with 409 Consumer Deleted; the
        caller then calls forget_unneeded(), unless the stream is deleted too. With `follows`, another server delivers
        from now on: tell them so."""
        cdef WaitingRequest *wr
        cdef const char *why = b"409 Consumer Deleted" if deleted else b"409 Leadership Change"
        if self.closed:
            return
        for address in self.subs:
            unsubscribe(self.stream.client, <Subscription *> <size_t> address)
        self.subs.clear()
        if self.notification != NULL:
            self.stream.account.clear_notification(self.notification)
            self.notification = NULL
        pthread_mutex_lock(&self.lock)
        self.closed = True
        store8(&self.hungry, 0)
        outq_cut(&self.out, self.proposals.committed)
        wr = self.waiting.head
        while wr != NULL and (deleted or follows):
            if deleted or not wr.announced:   # of the others, the next leader tells
                outq_status(&self.out, wr.reply, wr.reply_n, NULL, 0, why, b"")
            wr = wr.next
        waitq_free(&self.waiting)
        pthread_mutex_unlock(&self.lock)
        self.engine.arm(&self.timer, 0)
        self.engine.arm(&self.kicker, 0)
        self.release_timers()
        wake_now(self)
        if self.started:
            self.stream.remove_consumer(self)
        self.engine.bury(self)

    def signal_shutdown(self) -> None:
        """Answer the waiting requests with 409 Server Shutdown. The control loop."""
        cdef WaitingRequest *wr
        pthread_mutex_lock(&self.lock)
        wr = self.waiting.head
        while wr != NULL:
            outq_ended(&self.out, wr.reply, wr.reply_n, b"409 Server Shutdown", wr.n, wr.b)
            wr = wr.next
        answered = self.waiting.n != 0
        pthread_mutex_unlock(&self.lock)
        if answered:
            wake_now(self)

    def forget_unneeded(self) -> None:
        """Have the stream remove messages that no consumer is interested in any more (cleanupNoInterestMessages), after
        this consumer was deleted or its filter changed. Looks at each message above the ack floor. Any thread."""
        cdef uint64_t floor
        if self.cfg.retention != INTEREST_POLICY:
            return
        pthread_mutex_lock(&self.lock)
        floor = self.asflr
        pthread_mutex_unlock(&self.lock)
        remove_unneeded(self.stream, NULL, floor + 1, UINT64_MAX)

    def check_state_for_interest_stream(self) -> None:
        """After recovery, have an interest or work queue stream remove the messages that this consumer had acknowledged
        but the stream had not removed yet. Any thread."""
        cdef uint64_t end
        if self.cfg.retention == LIMITS_POLICY:
            return
        pthread_mutex_lock(&self.lock)
        end = self.sseq
        pthread_mutex_unlock(&self.lock)
        remove_unneeded(self.stream, self.filter, 0, end)

    # -- for the API -------------------------------------------------------------------------------------------------

    def info(self) -> dict[str, object]:
        """The numbers of a ConsumerInfo. Times are ns since 1970, 0 for never; `pin` is None when no client has it."""
        cdef uint64_t last, msgs, most
        cdef int64_t pending, wall = realtime_ns()
        cdef dict out
        pthread_mutex_lock(&self.lock)
        pthread_mutex_lock(&self.store.lock)
        last = self.store.last_seq
        msgs = self.store.msgs
        if self.sseq > last:
            self.npc = 0
        elif self.npc > 0:
            most = min(msgs, last - self.sseq + 1)
            if <uint64_t> self.npc > most:
                self.npc = <int64_t> most
        pending = num_pending(self)
        pthread_mutex_unlock(&self.store.lock)
        if not self.cfg.push and not self.closed:
            process_waiting(self, False, monotonic_ns())
        stored = not self.cfg.direct and (
            not self.cfg.memory or self.stored.delivered.consumer != 0 or self.stored.delivered.stream != 0)
        out = {
            "delivered_consumer": self.stored.delivered.consumer if stored else max(self.dseq, 1) - 1,
            "delivered_stream": self.stored.delivered.stream if stored else max(self.sseq, 1) - 1,
            "delivered_last": self.ldt,
            "ack_floor_consumer": self.adflr if self.cfg.direct else self.stored.floor.consumer,
            "ack_floor_stream": self.asflr if self.cfg.direct else self.stored.floor.stream,
            "ack_floor_last": self.lat,
            "num_ack_pending": self.stored.pending.n,
            "num_redelivered": self.stored.pending.nredelivered if self.cfg.max_deliver != 1 else 0,
            "num_waiting": self.waiting.n,
            "num_pending": pending,
            "push_bound": bool(self.cfg.push and self.active),
            "paused": self.cfg.pause_until > wall,
            "pause_remaining": max(time_before(self.cfg.pause_until, wall), 0),
            "pin": PyBytes_FromStringAndSize(self.pin.id, PIN_N).decode() if self.pin.held else None,
            "pinned_ts": self.pin.ts,
        }
        ended = self.out.n != 0
        pthread_mutex_unlock(&self.lock)
        if ended:
            wake_now(self)   # send the answers to requests that process_waiting() has ended
        return out

    @property
    def is_active(self) -> bool:
        """Whether the deliver subject of a push consumer has a subscriber."""
        return bool(self.active and not self.closed)

    def unpin(self) -> bool:
        """Take the pin from its client. Return whether a client had it."""
        cdef bint had
        pthread_mutex_lock(&self.lock)
        had = self.pin.held
        unassign_pin(&self.pin)
        pthread_mutex_unlock(&self.lock)
        wake_now(self)
        return had

    def check_reset(self, uint64_t seq) -> int:
        """Return the sequence that a reset to `seq` begins at: behind the ack floor for 0.

        Raises ResetError when the deliver policy does not allow it.
        """
        cdef uint64_t first = 0
        if seq:
            if self.config.deliver_policy == "by_start_sequence":
                if seq < self.config.opt_start_seq:
                    raise ResetError("below start seq")
            elif self.config.deliver_policy == "by_start_time":
                pthread_mutex_lock(&self.store.lock)
                first = self.store.seq_from_time(unix_ns(self.config.opt_start_time))
                pthread_mutex_unlock(&self.store.lock)
                if seq < first:
                    raise ResetError("below start time")
            elif self.config.deliver_policy != "all":
                raise ResetError("not allowed")
            return seq
        pthread_mutex_lock(&self.lock)
        seq = self.asflr + 1
        pthread_mutex_unlock(&self.lock)
        return seq

    def reset(self, uint64_t seq) -> None:
        """Begin anew at a stream sequence, of check_reset()."""
        pthread_mutex_lock(&self.lock)
        begin_at(self, seq)
        pthread_mutex_unlock(&self.lock)
        kick(self)

    @staticmethod
    def notice(bytes data not None) -> tuple[int, int, int, int, bytes]:
        """Decode the data of a consumer's EV_JETSTREAM: (stream seq, consumer seq, deliveries, ack time in ns, text).

        Raises ValueError for data that is too short.
        """
        cdef Notice n
        if len(data) < <Py_ssize_t> sizeof(Notice):
            raise ValueError("no notice of a consumer")
        memcpy(&n, PyBytes_AS_STRING(data), sizeof(Notice))
        return n.sseq, n.dseq, n.deliveries, n.ack_time, data[sizeof(Notice):]

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        """Whether the state has changed since the last state()."""
        return bool(self.dirty)

    def state(self) -> bytes:
        """Encode the state as an o.dat, unsealed, and mark it as not dirty. Raises MemoryError; call it again then."""
        cdef ConsumerSnapshot snap
        cdef uint8_t *out = NULL
        cdef size_t n = 0
        memset(&snap, 0, sizeof(snap))
        with nogil:
            pthread_mutex_lock(&self.lock)
            if stored_snapshot(&self.stored, &snap):
                out = <uint8_t *> malloc(consumer_bound(&snap))
                if out != NULL:
                    self.dirty = False
            pthread_mutex_unlock(&self.lock)
            if out != NULL:
                n = consumer_encode(&snap, realtime_ns(), out)
            consumer_free(&snap)
        try:
            if out == NULL:
                raise MemoryError
            return PyBytes_FromStringAndSize(<char *> out, n)
        finally:
            free(out)

    def restore(self, bytes data not None, *, bint replicated=False) -> None:
        """Go on from a state that state() or nats-server encoded. Call it before start().

        Raises ValueError for a state that cannot be decoded, MemoryError.
        """
        cdef ConsumerSnapshot snap
        cdef uint64_t first, last
        memset(&snap, 0, sizeof(snap))
        if consumer_decode(&snap, <const uint8_t *> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)) != 0:
            raise ValueError(f"the state of consumer {self.name!r} cannot be read")
        pthread_mutex_lock(&self.store.lock)
        first = self.store.first_seq
        last = self.store.last_seq
        pthread_mutex_unlock(&self.store.lock)
        pthread_mutex_lock(&self.lock)
        try:
            if not stored_restore(&self.stored, &self.cfg, &snap, first):
                raise MemoryError
            self.sseq = self.stored.delivered.stream + 1
            self.dseq = self.stored.delivered.consumer + 1
            self.adflr = self.stored.floor.consumer
            self.asflr = self.stored.floor.stream
            if self.sseq - 1 > last and not replicated:
                reconcile_with_stream(self, last)
                self.reconciled = True
                if self.sseq < self.config.opt_start_seq:
                    # The consumer waits for its start sequence, which the stream has not reached.
                    self.sseq = self.config.opt_start_seq
                    self.asflr = self.sseq - 1
                    propose_position(self, OP_MOVED)
        finally:
            pthread_mutex_unlock(&self.lock)
            consumer_free(&snap)


# -- settings ----------------------------------------------------------------------------------------------------------

cdef list filter_subjects(config):
    return list(config.filter_subjects) or ([config.filter_subject] if config.filter_subject else [])


cdef int read_settings(ConsumerState o, config, ConsumerSettings *cfg) except -1:
    """Fill in a zeroed struct from a ConsumerConfig."""
    cdef int64_t *backoff = NULL
    cdef size_t i
    cfg.ack_policy = ACK_POLICIES[config.ack_policy]
    cfg.priority_policy = PRIORITY_POLICIES[config.priority_policy]
    cfg.push = bool(config.deliver_subject)
    cfg.replay_original = config.replay_policy == "original"
    cfg.flow_control = config.flow_control and cfg.push
    cfg.headers_only = config.headers_only
    cfg.direct = config.direct
    cfg.last_per_subject = config.deliver_policy == "last_per_subject"
    cfg.memory = config.mem_storage or config.direct or o.stream.cfg.memory
    cfg.retention = o.stream.cfg.retention
    cfg.ack_wait = max(config.ack_wait, 0)
    cfg.max_deliver = max(config.max_deliver, 0)
    cfg.max_ack_pending = max(config.max_ack_pending, 0) if cfg.ack_policy != POLICY_NONE else 0
    cfg.max_waiting = min(max(config.max_waiting, 0), 0xffffffff)
    cfg.max_batch = config.max_batch
    cfg.max_expires = config.max_expires
    cfg.max_bytes = config.max_bytes
    cfg.heartbeat = max(config.idle_heartbeat, 0) if cfg.push else 0
    cfg.pinned_ttl = config.priority_timeout
    cfg.pause_until = unix_ns(config.pause_until)
    # an int32 that wraps around, as in nats-server
    cfg.sample = max((int(config.sample_freq.removesuffix("%") or 0) + 2**31) % 2**32 - 2**31, 0)
    cfg.rate = config.rate_limit_bps // 8
    cfg.burst = o.stream.cfg.max_msg_size if o.stream.cfg.max_msg_size > 0 else o.burst
    jitter = random.randrange(100, 1000) * MILLISECOND
    if not config.durable_name and config.inactive_threshold <= 0:
        cfg.inactive = INACTIVE_DEFAULT + jitter
    elif config.inactive_threshold > 0:
        cfg.inactive = time_after(config.inactive_threshold, 0 if cfg.push else jitter)
    text = duration(config.max_expires).encode()
    group = config.priority_groups[0].encode() if config.priority_groups else None
    if config.backoff:
        backoff = <int64_t *> malloc(len(config.backoff) * sizeof(int64_t))
        if backoff == NULL:
            raise MemoryError
        for i in range(len(config.backoff)):
            backoff[i] = config.backoff[i]
    cfg.backoff = backoff
    cfg.nbackoff = <uint32_t> len(config.backoff)
    pthread_mutex_lock(&o.lock)
    o.expires_text = text
    o.expires_text_p = PyBytes_AS_STRING(o.expires_text)
    o.group_name = group
    o.group = PyBytes_AS_STRING(o.group_name) if group is not None else NULL
    o.group_n = PyBytes_GET_SIZE(o.group_name) if group is not None else 0
    pthread_mutex_unlock(&o.lock)
    return 0


cdef int set_filter(ConsumerState o, config) except -1:
    cdef Filter *made = filter_make(filter_subjects(config))
    cdef Filter *old = o.filter
    pthread_mutex_lock(&o.lock)
    try:
        o.stream.consumer_list.refilter(o, made)
    except MemoryError:
        old = made
        raise
    finally:
        pthread_mutex_unlock(&o.lock)
        filter_free(old)
    return 0


cdef int set_deliver_subject(ConsumerState o, config) except -1:
    """Deliver to the configuration's deliver subject, and hear of the interest in it."""
    cdef bytes subject = config.deliver_subject.encode()
    cdef bytes queue = config.deliver_group.encode()
    cdef Account account = o.stream.account
    cdef char *copy = <char *> malloc(PyBytes_GET_SIZE(subject) + 1)
    if copy == NULL:
        raise MemoryError
    memcpy(copy, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
    if o.notification != NULL:
        account.clear_notification(o.notification)
    o.notification = account.register_notification(
        PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue),
        on_interest, <void *> o)
    if o.notification == NULL:
        free(copy)
        raise MemoryError
    # on_interest() runs with this lock held to write, and may have run already.
    pthread_rwlock_rdlock(&account.sublist.lock)
    exchange8(&o.listeners, o.notification.interest)
    pthread_rwlock_unlock(&account.sublist.lock)
    pthread_mutex_lock(&o.lock)
    free(o.dsubj)
    o.dsubj = copy
    o.dsubj_n = PyBytes_GET_SIZE(subject)
    exchange8(&o.recheck, 1)
    pthread_mutex_unlock(&o.lock)
    return 0


cdef void on_interest(void *ctx, bint interest) noexcept nogil:
    """The callback of the notification. The sublist's lock is held."""
    note_interest(<ConsumerState> ctx, interest)


cdef void note_interest(ConsumerState o, bint interest) noexcept nogil:
    exchange8(&o.listeners, interest)
    exchange8(&o.recheck, 1)
    kick(o)


# -- its stream --------------------------------------------------------------------------------------------------------

cdef int subscribe(ConsumerState o, bytes subject, MessageHandler fn) except -1:
    o.subs.append(<size_t> subscribe_native(o.stream.client, subject, b"", <void *> o, fn))
    return 0


cdef void wake_now(ConsumerState o):
    """Call run() now, in an empty batch of the control loop's poller."""
    wake(o, o.engine.control)
    o.engine.run_batch()


# -- state -------------------------------------------------------------------------------------------------------------

cdef void reconcile_with_stream(ConsumerState o, uint64_t last) noexcept nogil:
    """Go back to `last`, the stream's last sequence, after the stream has lost its end (reconcileStateWithStream)."""
    cdef const DeliveredMsg *e = NULL
    cdef uint32_t i
    cdef int op = OP_MOVED
    if o.asflr > last:
        o.asflr = last
        o.adflr = o.dseq - 1 if o.dseq else 0
        op = OP_RESET
    else:
        for i in range(1, o.stored.pending.used + 1):
            e = &o.stored.pending.entries[i]
            if e.seq > last and (e.flags or e.rdc):
                propose_of(o, OP_FORGOTTEN, e.seq)
                if o.stored.pending.used == 0:
                    break
        e = pending_last(&o.stored.pending)
    o.sseq = e.seq + 1 if e != NULL else o.asflr + 1
    o.dseq = e.dseq + 1 if e != NULL else o.adflr + 1
    propose_position(o, op)
