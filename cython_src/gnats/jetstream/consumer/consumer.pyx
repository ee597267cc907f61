"""A consumer; see consumer.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.subscriptions cimport add_native_sub, unsubscribe
from gnats.core.messages.headers cimport named_header
from gnats.core.messages.message cimport Message, NativeSub
from gnats.core.runtime.clock cimport monotonic_ns, realtime_ns
from gnats.core.runtime.quiesce cimport QsParticipant, qs_offline, qs_online, qs_register, qs_unregister
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription
from gnats.includes.atomics cimport exchange8, load8, store8
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.times cimport time_after, time_before
from gnats.jetstream.consumer.consumeracks cimport Acked
from gnats.jetstream.consumer.consumerlog cimport local_consumer_log
from gnats.jetstream.consumer.consumerstate cimport (
    FC_MAX,
    POLICY_FLOW_CONTROL,
    POLICY_NONE,
    ConsumerSettings,
    Notice,
)
from gnats.jetstream.consumer.pending cimport (
    Entry,
    pending_first,
    pending_find,
    pending_forget,
    pending_free,
    pending_last,
    pending_next,
    pending_rdc,
    pending_reserve,
    pending_set_deadline,
    pending_set_rdc,
    pending_track,
)
from gnats.jetstream.consumer.requests cimport WaitingRequest, waitq_free
from gnats.jetstream.consumer.send_queue cimport outq_ended, outq_status
from gnats.jetstream.engine.barrier cimport local_of, run_later
from gnats.jetstream.state.headers cimport level_too_high
from gnats.jetstream.state.streamcore cimport INTEREST_POLICY, LIMITS_POLICY, StreamCore
from gnats.store.base cimport STORE_OK, StoreMsg
from gnats.store.format.codec cimport (
    ConsumerSnapshot,
    PendingEntry,
    RedeliveredEntry,
    consumer_bound,
    consumer_decode,
    consumer_encode,
    consumer_free,
)
from gnats.store.index.filter cimport Filter, filter_free, filter_make
from gnats.store.times.durations cimport parse_int64

import random


from gnats.go.text import duration
from gnats.go.times import unix_ns
from gnats.nkeys.identity import server_hash

ACK_POLICIES = {"none": 0, "all": 1, "explicit": 2, "flow_control": 3}
DELIVER_POLICIES = {
    "all": 0, "last": 1, "last_per_subject": 2, "new": 3, "by_start_sequence": 4, "by_start_time": 5,
}
PRIORITY_POLICIES = {"": 0, "none": 0, "overflow": 1, "pinned_client": 2, "prioritized": 3}
INACTIVE_DEFAULT = 5 * 10**9
"""ns after which an unused ephemeral consumer is deleted."""

cdef enum:
    ON_ACK = 0
    ON_REQUEST = 1
    ON_FLOW_CONTROL = 2


class ResetError(ValueError):
    """A consumer cannot be reset to a sequence; the text is nats-server's."""


cdef class Consumer(ConsumerDelivery):
    """A consumer of a stream. For the control loop's thread, unless a method says otherwise.

    `config`: a checked gnats.jetstream.settings.config.ConsumerConfig. `account`: the account's name. `domain`,
    `reply_v2`: the form of reply subjects. `state`: where to go on (bytes of an o.dat, unsealed); without it, begin
    where the configuration says. `burst`: bytes of the rate limit's burst where the stream has no max_msg_size.
    `created`: ns since 1970, 0 for now. It delivers nothing before start().

    It posts EV_JETSTREAM events to the control poller's inbox: `a` is a ConsumerEvent, the data is for notice(). Raises
    ValueError for a state that cannot be decoded, MemoryError.
    """

    def __init__(
        self,
        StreamCore stream not None,
        str name not None,
        config not None,
        *,
        str account="$G",
        str domain="",
        bint reply_v2=False,
        bytes state=None,
        int64_t burst=1048576,
        int64_t created=0,
    ):
        cdef bytes names = stream.name.encode() + b"." + name.encode()
        cdef bytes v2 = f"{domain or '_'}.{server_hash(account)}.".encode() + names
        cdef ConsumerSettings cfg
        self.log = &local_consumer_log
        if created:
            self.created = created
        self.subs = []
        self.ack_prefix = b"$JS.ACK." + (v2 if reply_v2 else names)
        self.fc_prefix = b"$JS.FC." + (v2 if reply_v2 else names) + b"."
        self.ack_prefix_p = PyBytes_AS_STRING(self.ack_prefix)
        self.ack_prefix_n = PyBytes_GET_SIZE(self.ack_prefix)
        self.fc_prefix_p = PyBytes_AS_STRING(self.fc_prefix)
        self.fc_prefix_n = PyBytes_GET_SIZE(self.fc_prefix)
        self.fcid = <char *> malloc(self.fc_prefix_n + 8)
        if self.fcid == NULL:
            raise MemoryError
        self.burst = burst
        memset(&cfg, 0, sizeof(cfg))
        self.read_settings(config, &cfg)
        self.cfg = cfg
        self.tokens = cfg.burst
        self.tokens_at = monotonic_ns()
        self.waiting.max = cfg.max_waiting
        self.waiting.last = self.tokens_at
        self.set_filter(config)
        self.config = config
        if cfg.flow_control:
            self.pblimit = FC_MAX
            self.maxpb = FC_MAX // 16
        self.names = (names, v2)
        self.dirty = True   # no CONSUMER_DIRTY is posted before start()
        if state is not None:
            self.restore(state)
        elif not self.select_starting_seq(
            DELIVER_POLICIES[config.deliver_policy], config.opt_start_seq, unix_ns(config.opt_start_time)
        ):
            raise MemoryError

    def __dealloc__(self):
        free(self.fcid)

    def __repr__(self) -> str:
        return f"<Consumer {self.stream.name!r} > {self.name!r}>"

    # -- settings ----------------------------------------------------------------------------------------------------

    cdef int read_settings(self, config, ConsumerSettings *cfg) except -1:
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
        cfg.memory = config.mem_storage or config.direct or self.stream.cfg.memory
        cfg.retention = self.stream.cfg.retention
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
        cfg.burst = self.stream.cfg.max_msg_size if self.stream.cfg.max_msg_size > 0 else self.burst
        jitter = random.randrange(100, 1000) * 10**6
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
        pthread_mutex_lock(&self.lock)
        self.expires_text = text
        self.expires_text_p = PyBytes_AS_STRING(self.expires_text)
        self.group_name = group
        self.group = PyBytes_AS_STRING(self.group_name) if group is not None else NULL
        self.group_n = PyBytes_GET_SIZE(self.group_name) if group is not None else 0
        pthread_mutex_unlock(&self.lock)
        return 0

    cdef int set_filter(self, config) except -1:
        cdef Filter *made = filter_make(filter_subjects(config))
        cdef Filter *old = self.filter
        pthread_mutex_lock(&self.lock)
        try:
            self.stream.consumer_list.refilter(self, made)
        except MemoryError:
            old = made
            raise
        finally:
            pthread_mutex_unlock(&self.lock)
            filter_free(old)
        return 0

    cdef int set_deliver_subject(self, config) except -1:
        """Deliver to the configuration's deliver subject, and hear of the interest in it."""
        cdef bytes subject = config.deliver_subject.encode()
        cdef bytes queue = config.deliver_group.encode()
        cdef Account account = <Account> self.stream.account
        cdef char *copy = <char *> malloc(PyBytes_GET_SIZE(subject) + 1)
        if copy == NULL:
            raise MemoryError
        memcpy(copy, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        if self.notification != NULL:
            account.clear_notification(self.notification)
        self.notification = account.register_notification(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue),
            on_interest, <void *> self)
        if self.notification == NULL:
            free(copy)
            raise MemoryError
        pthread_mutex_lock(&self.lock)
        free(self.dsubj)
        self.dsubj = copy
        self.dsubj_n = PyBytes_GET_SIZE(subject)
        # Read the notification's present interest: on_interest() may have run for it already.
        exchange8(&self.listeners, self.notification.interest)
        exchange8(&self.recheck, 1)
        pthread_mutex_unlock(&self.lock)
        return 0

    def configure(self, config not None) -> None:
        """Apply a checked ConsumerConfig that may replace the present one. Raises MemoryError."""
        cdef ConsumerSettings cfg
        cdef ConsumerSettings before
        cdef int64_t now = monotonic_ns(), wall = realtime_ns()
        cdef Entry *e
        cdef bint filtered = filter_subjects(config) != filter_subjects(self.config)
        memset(&cfg, 0, sizeof(cfg))
        self.read_settings(config, &cfg)
        if filtered:
            self.set_filter(config)
        if config.deliver_subject != self.config.deliver_subject:
            pthread_mutex_lock(&self.lock)
            self.force_expire_pending(wall)
            pthread_mutex_unlock(&self.lock)
            self.set_deliver_subject(config)
        pthread_mutex_lock(&self.lock)
        before = self.cfg
        self.cfg = cfg
        e = pending_first(&self.pending)
        while e != NULL:
            pending_set_deadline(&self.pending, e, time_after(e.ts, self.wait_of(e.rdc)))
            e = pending_next(&self.pending, e)
        if config.inactive_threshold != self.config.inactive_threshold:
            self.inactive_at = time_after(now, cfg.inactive) if cfg.inactive else 0
        else:
            self.cfg.inactive = before.inactive   # keep its jitter
        if cfg.pause_until != before.pause_until:
            self.pause_at = time_after(now, cfg.pause_until - wall) if cfg.pause_until > wall else 0
        if filtered:
            self.stream_num_pending()
        pthread_mutex_unlock(&self.lock)
        free(before.backoff)
        self.config = config
        self.kick()

    # -- its life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Add the consumer to its stream, subscribe, and deliver from now on. Raises MemoryError.

        Posts no CONSUMER_DIRTY for the initial state, unless restore() had to change it. Delivers when the control loop
        has come round, so the consumer's creator has the answer, with the initial state, before the first message.
        """
        cdef int64_t now = monotonic_ns(), wall = realtime_ns()
        names, v2 = self.names
        self.stream.add_consumer(self)
        if self.cfg.push:
            self.set_deliver_subject(self.config)
        pthread_mutex_lock(&self.lock)
        self.stream_num_pending()
        if self.cfg.replay_original:
            self.replay = True
            self.replay_end = self.store.last_seq
        if self.cfg.heartbeat:
            self.heartbeat_at = time_after(now, self.cfg.heartbeat)
        if self.cfg.pause_until > wall:
            self.pause_at = time_after(now, self.cfg.pause_until - wall)
        if self.cfg.push:
            self.update_delivery_interest(load8(&self.listeners) != 0, now)
        if self.cfg.inactive and (not self.cfg.push or not self.active):
            self.inactive_at = time_after(now, self.cfg.inactive)
        self.started = True
        self.dirty = False
        if self.reconciled:
            self.mark_dirty()
        pthread_mutex_unlock(&self.lock)
        if self.cfg.ack_policy != POLICY_NONE and self.cfg.ack_policy != POLICY_FLOW_CONTROL:
            self.subscribe_native(b"$JS.ACK." + names + b".*.*.*.*.*", ON_ACK)
            self.subscribe_native(b"$JS.ACK." + v2 + b".*.*.*.*.>", ON_ACK)
        self.subscribe_native(b"$JS.API.CONSUMER.MSG.NEXT." + names, ON_REQUEST)
        if self.cfg.flow_control:
            self.subscribe_native(b"$JS.FC." + names + b".*", ON_FLOW_CONTROL)
            self.subscribe_native(b"$JS.FC." + v2 + b".*", ON_FLOW_CONTROL)
        self.kick()

    cdef int subscribe_native(self, bytes subject, int which) except -1:
        cdef NativeSub native
        cdef Subscription *s
        cdef int error = 0
        native.ctx = <void *> self
        if which == ON_ACK:
            native.fn = on_ack
        elif which == ON_REQUEST:
            native.fn = on_request
        else:
            native.fn = on_flow_control
        s = add_native_sub(
            self.stream.client, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), NULL, 0, &native, &error)
        if s == NULL:
            raise MemoryError if error == 0 else ValueError(f"invalid subject {subject!r}")
        self.subs.append(<size_t> s)
        return 0

    def close(self, *, bint deleted=False) -> None:
        """Leave the stream. Idempotent. With `deleted`, answer the waiting requests with 409 Consumer Deleted; the
        caller then calls forget_unneeded(), unless the stream is deleted too."""
        cdef WaitingRequest *wr
        if self.closed:
            return
        for address in self.subs:
            unsubscribe(self.stream.client, <Subscription *> <size_t> address)
        self.subs.clear()
        if self.notification != NULL:
            (<Account> self.stream.account).clear_notification(self.notification)
            self.notification = NULL
        pthread_mutex_lock(&self.lock)
        self.closed = True
        store8(&self.hungry, 0)
        wr = self.waiting.head
        while wr != NULL and deleted:
            outq_status(&self.out, wr.reply, wr.reply_n, NULL, 0, b"409 Consumer Deleted", b"")
            wr = wr.next
        waitq_free(&self.waiting)
        pthread_mutex_unlock(&self.lock)
        self.engine.arm(&self.timer, 0)
        self.engine.arm(&self.kicker, 0)
        self.release_timers()
        self.wake_now()
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
        told = self.waiting.n != 0
        pthread_mutex_unlock(&self.lock)
        if told:
            self.wake_now()

    def forget_unneeded(self) -> None:
        """Have the stream remove messages that no consumer is interested in any more (cleanupNoInterestMessages), after
        this consumer was deleted or its filter changed. Looks at each message above the ack floor. Any thread."""
        cdef uint64_t floor
        if self.cfg.retention != INTEREST_POLICY:
            return
        pthread_mutex_lock(&self.lock)
        floor = self.asflr
        pthread_mutex_unlock(&self.lock)
        self.remove_unneeded(False, floor + 1, UINT64_MAX)

    def check_state_for_interest_stream(self) -> None:
        """After recovery, have an interest or work queue stream remove the messages that this consumer had acknowledged
        but the stream had not removed yet. Any thread."""
        cdef uint64_t end
        if self.cfg.retention == LIMITS_POLICY:
            return
        pthread_mutex_lock(&self.lock)
        end = self.sseq
        pthread_mutex_unlock(&self.lock)
        self.remove_unneeded(True, 0, end)

    cdef void remove_unneeded(self, bint filtered, uint64_t seq, uint64_t end):
        """Have the stream remove those of its present messages from seq up to, but without, end that no consumer needs
        any more. `filtered`: only those that pass this consumer's filter. No lock is held; any thread."""
        cdef QsParticipant me
        cdef StoreMsg sm
        cdef bint more = True
        qs_register(&me)
        with nogil:
            pthread_mutex_lock(&self.store.lock)
            end = min(end, self.store.last_seq + 1)
            pthread_mutex_unlock(&self.store.lock)
            while more:
                qs_online(&me)
                pthread_mutex_lock(&self.store.lock)
                more = not self.stream.closed and self.store.load_next(
                    self.filter if filtered else NULL, seq, &sm, NULL) == STORE_OK
                pthread_mutex_unlock(&self.store.lock)
                more = more and sm.seq < end
                if more:
                    seq = sm.seq + 1
                    self.stream.ack_msg(sm.seq, NULL)
                qs_offline(&me)
        qs_unregister(&me)

    cdef void wake_now(self):
        """Call run() now, in an empty batch of the control loop's poller."""
        run_later(local_of(self.engine.control), self)
        self.engine.run_batch()

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
        pending = self.num_pending()
        pthread_mutex_unlock(&self.store.lock)
        if not self.cfg.push and not self.closed:
            self.process_waiting(False, monotonic_ns())
        stored = not self.cfg.direct and (
            not self.cfg.memory or self.delivered.consumer != 0 or self.delivered.stream != 0)
        out = {
            "delivered_consumer": self.delivered.consumer if stored else max(self.dseq, 1) - 1,
            "delivered_stream": self.delivered.stream if stored else max(self.sseq, 1) - 1,
            "delivered_last": self.ldt,
            "ack_floor_consumer": self.adflr if self.cfg.direct else self.floor.consumer,
            "ack_floor_stream": self.asflr if self.cfg.direct else self.floor.stream,
            "ack_floor_last": self.lat,
            "num_ack_pending": self.pending.n,
            "num_redelivered": self.pending.nredelivered if self.cfg.max_deliver != 1 else 0,
            "num_waiting": self.waiting.n,
            "num_pending": pending,
            "push_bound": bool(self.cfg.push and self.active),
            "paused": self.cfg.pause_until > wall,
            "pause_remaining": max(time_before(self.cfg.pause_until, wall), 0),
            "pin": PyBytes_FromStringAndSize(self.pin, sizeof(self.pin)).decode() if self.pinned else None,
            "pinned_ts": self.pinned_ts,
        }
        ended = self.out.n != 0
        pthread_mutex_unlock(&self.lock)
        if ended:
            self.wake_now()   # send the answers to requests that process_waiting() has ended
        return out

    @property
    def is_active(self) -> bool:
        """Whether the deliver subject of a push consumer has a subscriber."""
        return bool(self.active and not self.closed)

    def unpin(self) -> bool:
        """Take the pin from its client. Returns whether a client had it."""
        cdef bint had
        pthread_mutex_lock(&self.lock)
        had = self.pinned
        self.unassign_pin()
        pthread_mutex_unlock(&self.lock)
        self.wake_now()
        return had

    def reset(self, uint64_t seq=0) -> int:
        """Begin anew at stream sequence `seq`, or behind the ack floor for 0. Returns the sequence.

        Raises ResetError when the deliver policy does not allow it.
        """
        cdef uint64_t first = 0
        cdef bint count
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
        pthread_mutex_lock(&self.lock)
        if seq == 0:
            seq = self.asflr + 1
        count = self.sseq != seq or self.pending.n
        pending_free(&self.pending)
        free(self.skip_list)
        self.skip_list = NULL
        self.skip_at = self.skip_n = 0
        self.sseq = seq
        self.dseq = 1
        self.adflr = 0
        self.asflr = seq - 1
        self.ldt = self.lat = 0
        self.delivered.consumer = self.floor.consumer = 0
        self.delivered.stream = self.floor.stream = seq - 1
        self.mark_dirty()
        if count:
            self.stream_num_pending()
        pthread_mutex_unlock(&self.lock)
        self.kick()
        return seq

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
        cdef Entry *e
        cdef uint8_t *out = NULL
        cdef size_t n = 0
        cdef uint32_t i
        memset(&snap, 0, sizeof(snap))
        with nogil:
            pthread_mutex_lock(&self.lock)
            snap.delivered_consumer = self.delivered.consumer
            snap.delivered_stream = self.delivered.stream
            snap.floor_consumer = self.floor.consumer
            snap.floor_stream = self.floor.stream
            snap.pending = <PendingEntry *> malloc((self.pending.n + 1) * sizeof(PendingEntry))
            snap.redelivered = <RedeliveredEntry *> malloc((self.pending.nredelivered + 1) * sizeof(RedeliveredEntry))
            if snap.pending != NULL and snap.redelivered != NULL:
                e = pending_first(&self.pending)
                while e != NULL:
                    if e.seq > snap.floor_stream:
                        snap.pending[snap.n_pending].stream_seq = e.seq
                        snap.pending[snap.n_pending].consumer_seq = e.dseq
                        snap.pending[snap.n_pending].ts = e.ts
                        snap.n_pending += 1
                    e = pending_next(&self.pending, e)
                for i in range(1, self.pending.used + 1):
                    e = &self.pending.entries[i]
                    if e.rdc > 0:
                        snap.redelivered[snap.n_redelivered].seq = e.seq
                        snap.redelivered[snap.n_redelivered].count = <uint64_t> e.rdc
                        snap.n_redelivered += 1
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

    def restore(self, bytes data not None) -> None:
        """Go on from a state that state() or nats-server encoded. Call it before start().

        Raises ValueError for a state that cannot be decoded, MemoryError.
        """
        cdef ConsumerSnapshot snap
        cdef uint64_t first, last
        cdef size_t i
        memset(&snap, 0, sizeof(snap))
        if consumer_decode(&snap, <const uint8_t *> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)) != 0:
            raise ValueError(f"the state of consumer {self.name!r} cannot be read")
        pthread_mutex_lock(&self.store.lock)
        first = self.store.first_seq
        last = self.store.last_seq
        pthread_mutex_unlock(&self.store.lock)
        pthread_mutex_lock(&self.lock)
        try:
            pending_free(&self.pending)
            self.delivered.consumer = snap.delivered_consumer
            self.delivered.stream = snap.delivered_stream
            self.floor.consumer = self.adflr = snap.floor_consumer
            self.floor.stream = self.asflr = snap.floor_stream
            self.sseq = snap.delivered_stream + 1
            self.dseq = snap.delivered_consumer + 1
            for i in range(snap.n_redelivered):
                if snap.redelivered[i].seq >= first and snap.redelivered[i].count:
                    if not pending_reserve(&self.pending):
                        raise MemoryError
                    pending_set_rdc(
                        &self.pending, snap.redelivered[i].seq,
                        <int64_t> min(snap.redelivered[i].count, <uint64_t> 1 << 32))
            for i in range(snap.n_pending):
                if not pending_reserve(&self.pending):
                    raise MemoryError
                pending_track(
                    &self.pending, snap.pending[i].stream_seq, snap.pending[i].consumer_seq, snap.pending[i].ts, 0)
                pending_set_deadline(
                    &self.pending, last_tracked(self, snap.pending[i].stream_seq), time_after(
                        snap.pending[i].ts, self.wait_of(pending_rdc(&self.pending, snap.pending[i].stream_seq))))
            if self.sseq - 1 > last:
                reconcile_with_stream(self, last)
                self.reconciled = True
                if self.sseq < self.config.opt_start_seq:
                    # The consumer waits for its start sequence, which the stream has not reached.
                    self.sseq = self.config.opt_start_seq
                    self.asflr = self.floor.stream = self.delivered.stream = self.sseq - 1
        finally:
            pthread_mutex_unlock(&self.lock)
            consumer_free(&snap)


cdef list filter_subjects(config):
    return list(config.filter_subjects) or ([config.filter_subject] if config.filter_subject else [])


cdef Entry *last_tracked(Consumer o, uint64_t seq) noexcept nogil:
    return pending_find(&o.pending, seq)


cdef void reconcile_with_stream(Consumer o, uint64_t last) noexcept nogil:
    """Go back to `last`, the stream's last sequence, after the stream has lost its end (reconcileStateWithStream)."""
    cdef Entry *e
    cdef uint32_t i
    if o.asflr > last:
        o.asflr = last
        o.adflr = o.dseq - 1 if o.dseq else 0
        pending_free(&o.pending)
    for i in range(1, o.pending.used + 1):
        e = &o.pending.entries[i]
        if e.seq > last and (e.flags or e.rdc):
            pending_forget(&o.pending, e)
            if o.pending.used == 0:
                break
    e = pending_last(&o.pending)
    o.sseq = e.seq + 1 if e != NULL else o.asflr + 1
    o.dseq = e.dseq + 1 if e != NULL else o.adflr + 1
    o.delivered.consumer = o.dseq - 1
    o.delivered.stream = o.sseq - 1
    o.floor.consumer = o.adflr
    o.floor.stream = o.asflr


cdef void on_interest(void *ctx, bint interest) noexcept nogil:
    """The callback of the notification. The sublist's lock is held."""
    exchange8(&(<Consumer> ctx).listeners, interest)
    exchange8(&(<Consumer> ctx).recheck, 1)
    (<Consumer> ctx).kick()


cdef bint on_ack(void *ctx, const Message *m, const Subscription *s) noexcept nogil:
    (<Consumer> ctx).process_ack(m.ps, &m.subject, &m.reply, m.data + m.hdr, m.n - m.hdr)
    return True


cdef bint on_request(void *ctx, const Message *m, const Subscription *s) noexcept nogil:
    cdef bint refused
    if m.reply.n == 0:
        return True
    if m.hdr and level_too_high(m.data, m.hdr):
        pthread_mutex_lock(&(<Consumer> ctx).lock)
        refused = not (<Consumer> ctx).cfg.push
        if refused:
            (<Consumer> ctx).refuse(m.reply.p, m.reply.n, b"412 Required Api Level")
        pthread_mutex_unlock(&(<Consumer> ctx).lock)
        if refused:
            (<Consumer> ctx).wake(m.ps)
            return True
    return (<Consumer> ctx).process_next_msg_request(
        m.ps, m.reply.p, m.reply.n, m.data + m.hdr, m.n - m.hdr)


cdef bint on_flow_control(void *ctx, const Message *m, const Subscription *s) noexcept nogil:
    """Handle an answer to a flow control request."""
    cdef Slice dseq, sseq
    cdef Acked acked
    cdef int64_t consumer_seq, stream_seq
    cdef bint signal = False
    acked.seqs = acked.few
    acked.n = 0
    acked.cap = 8
    pthread_mutex_lock(&(<Consumer> ctx).lock)
    if take_flow_control(<Consumer> ctx, &m.subject) and m.hdr and (
            (<Consumer> ctx).cfg.ack_policy == POLICY_FLOW_CONTROL):
        dseq = named_header(m.data, m.hdr, b"Nats-Last-Consumer")
        sseq = named_header(m.data, m.hdr, b"Nats-Last-Stream")
        consumer_seq = parse_int64(dseq.p, dseq.n) if dseq.p != NULL else 0
        stream_seq = parse_int64(sseq.p, sseq.n) if sseq.p != NULL else 0
        if stream_seq > 0:
            (<Consumer> ctx).process_ack_msg(
                NULL, <uint64_t> stream_seq, <uint64_t> max(consumer_seq, <int64_t> 0), 1, realtime_ns(), &acked,
                &signal)
    pthread_mutex_unlock(&(<Consumer> ctx).lock)
    (<Consumer> ctx).tell_stream(m.ps, &acked)
    (<Consumer> ctx).wake(m.ps)
    return True


cdef bint take_flow_control(Consumer o, const Slice *subject) noexcept nogil:
    """Take the answered bytes off pbytes and let the window grow. False when this is not the expected answer."""
    if o.closed or subject.n != o.fcid_n or memcmp(subject.p, o.fcid, o.fcid_n) != 0:
        return False
    if o.maxpb < o.pblimit:
        o.maxpb = min(2 * o.maxpb, o.pblimit)
    o.pbytes = max(o.pbytes - o.fcsz, <int64_t> 0)
    o.fcid_n = 0
    o.fcsz = 0
    return True
