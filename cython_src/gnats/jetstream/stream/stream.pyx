"""A stream; see stream.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, UINT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset
from posix.unistd cimport usleep

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.subscriptions cimport remove_all_subs, unsubscribe
from gnats.core.internal cimport InternalSubscriber
from gnats.core.messages.message cimport MessageHandler
from gnats.core.runtime.clock cimport monotonic_ns, realtime_ns
from gnats.core.runtime.const cimport MAX_PAYLOAD_SIZE, MAX_PENDING_SIZE
from gnats.core.runtime.kinds cimport JETSTREAM
from gnats.core.runtime.quiesce cimport QsParticipant, qs_offline, qs_online, qs_register, qs_unregister
from gnats.core.subjects.subject cimport subject_has_wildcard
from gnats.core.subjects.sublist cimport Subscription
from gnats.core.subjects.transform cimport SubjectTransform, Transform, transform_copy
from gnats.includes.atomics cimport add32, load32
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.times cimport time_before
from gnats.includes.units cimport SECOND
from gnats.jetstream.batch.atomicbatch cimport drop_atomic_batches, drop_partial_batch
from gnats.jetstream.batch.batchtimer cimport abandon_batches
from gnats.jetstream.batch.fastbatch cimport drop_fast_batches
from gnats.jetstream.engine.barrier cimport barrier_configure
from gnats.jetstream.engine.consumerbase cimport ConsumerBase
from gnats.jetstream.engine.engine cimport Engine
from gnats.jetstream.engine.nativesubs cimport subscribe_native
from gnats.jetstream.engine.usage cimport Usage, usage_add
from gnats.jetstream.state.batchtable cimport BatchLimits
from gnats.jetstream.state.consumerlist cimport (
    WITH_SUBJECT,
    WITH_SUBJECTS,
    Concerned,
    ConsumerList,
    concerned_at,
    concerned_free,
)
from gnats.jetstream.state.dedupe cimport dedupe_free
from gnats.jetstream.state.entry cimport DELETE_MSG, PURGE_MSGS, StreamChange
from gnats.jetstream.state.headers cimport H_MSG_ID, MsgHeaders, header_set, parse_headers
from gnats.jetstream.state.streamcore cimport (
    INTEREST_POLICY,
    LIMITS_POLICY,
    WORK_QUEUE_POLICY,
    StreamCore,
    StreamSettings,
    arm_schedules,
    note_damage,
    note_removed,
    remove_unneeded,
)
from gnats.jetstream.stream.aging cimport expire_msgs, purge_msg_ids
from gnats.jetstream.stream.directget cimport process_direct_get, process_direct_get_last
from gnats.jetstream.stream.ingest cimport process_inbound_jetstream_msg
from gnats.jetstream.stream.rollups cimport next_rollup
from gnats.jetstream.stream.scheduler cimport run_msg_scheduling
from gnats.jetstream.stream.streamlog cimport local_log
from gnats.store.base cimport STORE_AGAIN, STORE_DELETED, STORE_EOF, STORE_NOT_FOUND, STORE_OK, StoreMsg
from gnats.store.index.filter cimport Filter, filter_free, filter_make
from gnats.store.removing cimport Purge
from gnats.store.store cimport MsgStore

import json
import os

RETENTION = {"limits": LIMITS_POLICY, "interest": INTEREST_POLICY, "workqueue": WORK_QUEUE_POLICY}
DIRECT_GROUP = b"_sys_"

cdef enum:
    INGEST = 0
    DIRECT_GET = 1
    DIRECT_GET_LAST = 2
    BETWEEN = 100    # us of sleep between two parts of a purge


class StreamError(ValueError):
    """An operation on a stream is not possible; the text is nats-server's."""


cdef class Stream(StreamCore):
    """A stream: its subjects, its store, its consumers. For the control loop's thread, unless a method says otherwise.

    Call configure(), then subscribe(), from which on it stores messages. `cid`: the connection id of its subscriptions.
    `account_usage`, `server_usage`: the counts of bytes that include it. `domain`: named in replies to publishers.
    `max_direct`: the server's max_pending, bytes. `max_payload`: the server's, bytes. `batch_limits`: the server's,
    shared by its streams; without it the stream makes its own. Raises MemoryError.
    """

    def __init__(
        self,
        Engine engine not None,
        Account account not None,
        str name not None,
        MsgStore store not None,
        *,
        uint64_t cid,
        Usage account_usage=None,
        Usage server_usage=None,
        str domain="",
        uint64_t max_direct=MAX_PENDING_SIZE,
        size_t max_payload=MAX_PAYLOAD_SIZE,
        BatchLimits batch_limits=None,
    ):
        self.engine = engine
        self.log = &local_log
        self.decides = True
        self.reserve_timers()
        self.store = store
        self.consumer_list = ConsumerList(store)
        self.name = name
        self.client = InternalSubscriber(JETSTREAM, -1, cid, engine.pollers[0], engine.state)
        self.client.register(account)
        self.account = account
        self.keep = [account, engine]
        self.account_usage = account_usage
        self.server_usage = server_usage
        self.max_direct = max_direct
        self.max_payload = max_payload
        self.batch_limits = batch_limits or BatchLimits()
        self.subs = {}
        self.origin = b""
        self.name_bytes = name.encode()
        self.name_p = PyBytes_AS_STRING(self.name_bytes)
        self.name_n = PyBytes_GET_SIZE(self.name_bytes)
        quoted = json.dumps(name, ensure_ascii=False)
        self.ack_start = f'{{"stream":{quoted},'.encode()
        if domain:
            self.ack_start += f'"domain":{json.dumps(domain, ensure_ascii=False)},'.encode()
        self.ack_start += b'"seq":'
        for plain, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):   # as encoding/json does
            quoted = quoted.replace(plain, escaped)
        self.error_tail = f'}},"stream":{quoted},"seq":0}}'.encode()
        self.pub_ack = PyBytes_AS_STRING(self.ack_start)
        self.pub_ack_n = PyBytes_GET_SIZE(self.ack_start)
        self.error_end = PyBytes_AS_STRING(self.error_tail)
        self.error_end_n = PyBytes_GET_SIZE(self.error_tail)
        self.dedupe_timer.timer.owner = self.expiry_timer.timer.owner = <void *> self
        self.batch_timer.timer.owner = <void *> self
        self.batch_timer.fn = abandon_batches
        self.dedupe_timer.fn = purge_msg_ids
        self.expiry_timer.fn = expire_msgs
        self.schedule_timer.timer.owner = <void *> self
        self.schedule_timer.fn = run_msg_scheduling
        self.cfg.max_msg_size = -1
        store.ctx = <void *> self
        store.on_removed = note_removed
        store.on_lost = note_damage

    def __repr__(self) -> str:
        return f"<Stream {self.name!r}>"

    @property
    def failure(self) -> str:
        """Why the store has failed; empty when it has not."""
        cdef int error = -<int> load32(<uint32_t *> &self.failed)
        return (self.store.failure() or os.strerror(error)) if error else ""

    @property
    def is_subscribed(self) -> bool:
        return self.active

    @property
    def consumers(self) -> tuple:
        """The consumers, oldest first."""
        return tuple(self.consumer_list.members)

    def configure(self, config not None, *, bint sync_always=False) -> None:
        """Apply a checked StreamConfig, the first or an update. The owner of the store configures that itself.

        With `sync_always`, publishers are answered after an fdatasync. Raises ValueError for an invalid transform,
        MemoryError, OSError when the sync thread cannot be started.
        """
        cdef StreamSettings cfg
        cdef Transform *itr = NULL
        cdef Transform *tr = NULL
        cdef Transform *old_itr
        cdef Transform *old_tr
        cdef Filter *subjects = NULL
        cdef Filter *old_subjects
        memset(&cfg, 0, sizeof(cfg))
        cfg.no_ack = config.no_ack
        cfg.sealed = config.sealed
        cfg.deny_purge = config.deny_purge
        cfg.allow_rollup = config.allow_rollup_hdrs
        cfg.allow_ttl = config.allow_msg_ttl
        cfg.allow_atomic = config.allow_atomic
        cfg.allow_batched = config.allow_batched
        cfg.allow_counter = config.allow_msg_counter
        cfg.allow_schedules = config.allow_msg_schedules
        cfg.allow_direct = config.allow_direct
        cfg.discard_new = config.discard == "new"
        cfg.discard_new_per = config.discard_new_per_subject
        cfg.mirror = config.mirror is not None
        cfg.memory = config.storage == "memory"
        cfg.retention = RETENTION[config.retention]
        cfg.max_msg_size = config.max_msg_size if config.max_msg_size else -1
        cfg.max_msgs = config.max_msgs
        cfg.max_bytes = config.max_bytes
        cfg.max_msgs_per = config.max_msgs_per_subject
        cfg.duplicates = config.duplicate_window
        cfg.marker_ttl = config.subject_delete_marker_ttl // SECOND
        if config.subject_transform is not None and config.subject_transform.dest:
            itr = copied(SubjectTransform(config.subject_transform.src, config.subject_transform.dest))
        if config.republish is not None and config.republish.dest:
            try:
                tr = copied(SubjectTransform(config.republish.src, config.republish.dest))
            except BaseException:
                free(itr)
                raise
            cfg.republish_headers_only = config.republish.headers_only
        if sync_always:
            self.engine.start_sync()
        if cfg.allow_schedules:
            subjects = filter_make(config.subjects)
        pthread_mutex_lock(&self.store.lock)
        old_itr = self.itr
        old_tr = self.tr
        old_subjects = self.schedule_subjects
        self.itr = itr
        self.tr = tr
        self.schedule_subjects = subjects
        self.cfg = cfg
        if self.config is None:
            drop_partial_batch(self)
            self.account_for(<int64_t> self.store.bytes)
        # behind drop_partial_batch(), which takes back sequences that are not to count as synced
        barrier_configure(&self.barrier, sync_always, self.store.last_seq)
        if cfg.duplicates <= 0:
            dedupe_free(&self.dedupe)
        if self.dedupe_timer_set:
            self.engine.arm(&self.dedupe_timer, monotonic_ns())    # the duplicate window may have changed
        if not cfg.allow_atomic:
            drop_atomic_batches(self)
        if not cfg.allow_batched:
            drop_fast_batches(self)
        pthread_mutex_unlock(&self.store.lock)
        free(old_itr)
        free(old_tr)
        filter_free(old_subjects)
        if self.config is None:
            self.rebuild_dedupe()
        self.config = config
        if self.active:
            self.subscribe()
        self.look_for_expired()

    cdef void account_for(self, int64_t delta) noexcept:
        """Add `delta` bytes to the usages; the lock is held."""
        self.accounted += delta
        if self.account_usage is not None:
            usage_add(self.account_usage, self.cfg.memory, delta)
        if self.server_usage is not None:
            usage_add(self.server_usage, self.cfg.memory, delta)

    def limits_changed(self) -> None:
        """Tell usage and consumers of the messages that the store removed when its limits were changed. Any thread."""
        cdef QsParticipant me
        qs_register(&me)
        with nogil:
            qs_online(&me)
            self.enter()
            self.leave(NULL)
            qs_offline(&me)
        qs_unregister(&me)

    def forget_unneeded(self) -> None:
        """Remove the messages that no consumer needs, if retention depends on consumers. Any thread."""
        if self.cfg.retention != LIMITS_POLICY:
            remove_unneeded(self, NULL, 0, UINT64_MAX)

    def look_for_expired(self) -> None:
        """Arm the timers of expiry and schedules anew. Call it after the limits of the store were changed."""
        cdef int64_t when
        pthread_mutex_lock(&self.store.lock)
        when = min(self.store.next_expiry(), next_rollup(self))
        if not self.closed and when != INT64_MAX:
            self.expires_at = 0
            self.arm_expiry(when)
        if not self.closed and self.cfg.allow_schedules:
            arm_schedules(self)
        pthread_mutex_unlock(&self.store.lock)

    # -- subjects ----------------------------------------------------------------------------------------------------

    def subscribe(self) -> None:
        """Subscribe to the subjects of the configuration, and of direct gets if it allows them; store from now on.

        Unsubscribes from subjects that the configuration no longer has. Raises ValueError for an invalid subject,
        MemoryError.
        """
        cdef dict wanted = {}
        if self.config.mirror is None:
            for subject in self.config.subjects:
                wanted[subject.encode(), INGEST] = b""
        if self.cfg.allow_direct:
            wanted[b"$JS.API.DIRECT.GET." + self.name_bytes, DIRECT_GET] = DIRECT_GROUP
            wanted[b"$JS.API.DIRECT.GET." + self.name_bytes + b".>", DIRECT_GET_LAST] = DIRECT_GROUP
        if self.origin:
            wanted[b"$JS.API.DIRECT.GET." + self.origin, DIRECT_GET] = DIRECT_GROUP
            wanted[b"$JS.API.DIRECT.GET." + self.origin + b".>", DIRECT_GET_LAST] = DIRECT_GROUP
        for key in [key for key in self.subs if key not in wanted]:
            unsubscribe(self.client, <Subscription *> <size_t> self.subs.pop(key))
        pthread_mutex_lock(&self.store.lock)
        self.active = True
        if self.cfg.allow_schedules:
            arm_schedules(self)
        pthread_mutex_unlock(&self.store.lock)
        for (subject, which), queue in wanted.items():
            if (subject, which) not in self.subs:
                self.subscribe_to(subject, queue, which)

    def answer_for(self, str origin not None) -> None:
        """Answer direct gets to `origin` as well, the stream that this one mirrors; "" ends that.

        Raises ValueError for a name that is no subject token, MemoryError.
        """
        self.origin = origin.encode()
        if self.active:
            self.subscribe()

    cdef int subscribe_to(self, bytes subject, bytes queue, int which) except -1:
        cdef MessageHandler fn = process_direct_get_last
        if which == INGEST:
            fn = process_inbound_jetstream_msg
        elif which == DIRECT_GET:
            fn = process_direct_get
        self.subs[subject, which] = <size_t> subscribe_native(self.client, subject, queue, <void *> self, fn)
        return 0

    def unsubscribe(self) -> None:
        """Store no further message, and answer no direct gets. The subscriptions of its consumers stay.

        Open batches end without a word: their publishers find out at the server that leads next.
        """
        pthread_mutex_lock(&self.store.lock)
        self.active = False
        drop_atomic_batches(self)
        drop_fast_batches(self)
        pthread_mutex_unlock(&self.store.lock)
        for address in self.subs.values():
            unsubscribe(self.client, <Subscription *> <size_t> address)
        self.subs.clear()

    def close(self) -> None:
        """Close the stream. The caller closes its consumers before, and the store after. Idempotent."""
        cdef int err
        if self.closed:
            return
        self.unsubscribe()
        remove_all_subs(self.client)
        self.enter()
        err = self.store.flush()
        if err:
            self.fail(err)    # a poller may have answers about messages that are lost now
        self.closed = True
        self.account_for(-self.accounted)
        self.store.on_removed = NULL
        self.store.on_lost = NULL
        self.engine.arm(&self.dedupe_timer, 0)
        self.engine.arm(&self.expiry_timer, 0)
        self.engine.arm(&self.schedule_timer, 0)
        self.engine.arm(&self.batch_timer, 0)
        self.release_timers()
        drop_atomic_batches(self)
        drop_fast_batches(self)
        pthread_mutex_unlock(&self.store.lock)
        self.consumer_list.clear()
        self.engine.bury(self)

    # -- consumers ---------------------------------------------------------------------------------------------------

    def add_consumer(self, ConsumerBase consumer not None) -> None:
        """Notify the consumer of messages that are stored and removed from now on. Raises MemoryError."""
        self.consumer_list.add(consumer)

    def remove_consumer(self, ConsumerBase consumer not None) -> None:
        """Notify the consumer of nothing more; the caller then buries it (Engine.bury). Raises MemoryError."""
        self.consumer_list.remove(consumer)

    def consumers_with(self, bytes subject not None) -> list:
        """The consumers with a filter that overlaps `subject`, which may have wildcards. Of a stream with few
        consumers, all of them. Raises MemoryError."""
        cdef const char *p = PyBytes_AS_STRING(subject)
        cdef uint32_t n = <uint32_t> PyBytes_GET_SIZE(subject), i
        cdef Concerned c
        cdef list found = []
        if not self.consumer_list.look_up(WITH_SUBJECTS if subject_has_wildcard(p, n) else WITH_SUBJECT, p, n, &c):
            raise MemoryError
        for i in range(c.n):
            found.append(<ConsumerBase> concerned_at(&c, i))
        concerned_free(&c)
        return found

    # -- messages ----------------------------------------------------------------------------------------------------

    def state(self) -> object:
        """The store's state (gnats.store.store)."""
        return self.store.state()

    def get_msg(self, uint64_t seq) -> tuple:
        """(sequence, ns since 1970, subject, header, payload). Raises StoreFailure when there is no such message."""
        return self.store.get(seq)

    def last_msg(self, bytes subject not None) -> tuple | None:
        """The last message of a subject, as get_msg(); None when there is none. The subject may have wildcards."""
        return self.store.get_prev([subject])

    def next_msg(self, bytes subject not None, uint64_t start) -> tuple | None:
        """The first message of a subject (which may have wildcards) from sequence `start` on; None for none."""
        return self.store.get_next([subject], start)

    def delete_msg(self, uint64_t seq, bint erase=False) -> bool:
        """Remove a message; with `erase`, overwrite it. Return False when there was no such message. Any thread.

        Raises StreamError for a closed stream, StoreFailure when the store cannot do it.
        """
        cdef StreamChange change
        cdef int rc
        memset(&change, 0, sizeof(change))
        change.op = DELETE_MSG
        change.seq = seq
        change.erase = erase
        rc = self.propose(&change, NULL)
        if self.closed:
            raise StreamError("stream closed")
        if rc == STORE_NOT_FOUND or rc == STORE_DELETED or rc == STORE_EOF:
            return False
        self.store.check(rc)
        return True

    def purge(self, bytes subject=b"", uint64_t seq=0, uint64_t keep=0) -> int:
        """Remove all messages; with `subject`, only its; with `seq`, only those below it; with `keep`, all but the last
        `keep`. Return the number removed. Any thread.

        Raises StreamError for a sealed or closed stream, StoreFailure when the store cannot do it.
        """
        cdef StreamChange change
        cdef Purge part
        cdef int rc
        if self.closed:
            raise StreamError("stream closed")
        if self.cfg.sealed:
            raise StreamError("sealed stream")
        memset(&change, 0, sizeof(change))
        change.op = PURGE_MSGS
        change.subject.p = PyBytes_AS_STRING(subject)
        change.subject.n = PyBytes_GET_SIZE(subject)
        change.seq = seq
        change.keep = keep
        part.begun = False
        part.purged = 0
        rc = self.propose(&change, &part)
        self.store.check(rc)
        return part.purged

    cdef int propose(self, const StreamChange *change, Purge *part) noexcept:
        """Have the log make a change, unless the stream is closed. part: how far a purge is. Return a StoreError."""
        cdef QsParticipant me
        cdef int rc = STORE_AGAIN
        qs_register(&me)
        with nogil:
            while rc == STORE_AGAIN:
                qs_online(&me)
                self.enter()
                rc = self.log.change(self, change, part) if not self.closed else STORE_OK
                self.leave(NULL)
                if rc != STORE_AGAIN and part != NULL:
                    self.notify_purged(change.subject.p, change.subject.n)
                qs_offline(&me)
                if rc == STORE_AGAIN:
                    usleep(BETWEEN)    # let other threads take the lock
        qs_unregister(&me)
        return rc

    cdef int rebuild_dedupe(self) except -1:
        """Remember the ids of the messages within the duplicate window, and that of the last message."""
        cdef StoreMsg sm
        cdef MsgHeaders h
        cdef uint64_t seq, last
        cdef int64_t now = realtime_ns()
        with nogil:
            pthread_mutex_lock(&self.store.lock)
            last = self.store.last_seq
            if self.cfg.duplicates > 0 and self.store.msgs:
                seq = self.store.seq_from_time(time_before(now, self.cfg.duplicates))
                while seq and seq <= last and self.store.load_next(NULL, seq, &sm, NULL) == STORE_OK:
                    seq = sm.seq + 1
                    h.found = 0
                    if sm.hdr_n:
                        parse_headers(<char *> sm.hdr, sm.hdr_n, &h)
                    if header_set(&h, H_MSG_ID):
                        self.remember_msg_id(h.values[H_MSG_ID].p, h.values[H_MSG_ID].n, sm.seq, sm.ts)
                    if sm.seq == last:
                        self.set_last_msg_id(
                            h.values[H_MSG_ID].p, h.values[H_MSG_ID].n if header_set(&h, H_MSG_ID) else 0)
            pthread_mutex_unlock(&self.store.lock)
        return 0

    def advisory_published(self) -> None:
        """Note that the control loop has published the advisory of a BATCH_ABANDONED event."""
        add32(&self.advisories, <uint32_t> -1)

    def look_at_batches(self) -> None:
        """Look for batches that are silent for too long. Call it after batch_limits were changed."""
        pthread_mutex_lock(&self.store.lock)
        if self.batch_timer_set:
            self.engine.arm(&self.batch_timer, monotonic_ns())
        pthread_mutex_unlock(&self.store.lock)

    def msg_ids(self) -> int:
        """The number of message ids that are remembered."""
        return self.dedupe.n


cdef Transform *copied(SubjectTransform transform) except NULL:
    cdef Transform *copy = transform_copy(transform.compiled)
    if copy == NULL:
        raise MemoryError
    return copy
