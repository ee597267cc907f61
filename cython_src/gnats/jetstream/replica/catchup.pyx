"""Messages for a replica that a snapshot has put behind; see catchup.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, strtoull
from libc.string cimport memcpy, memset, strlen, strstr

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.subscriptions cimport remove_all_subs
from gnats.core.batch cimport end_batch_between_rounds
from gnats.core.internal cimport InternalSubscriber
from gnats.core.messages.message cimport Message
from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.clock cimport monotonic_ns
from gnats.core.runtime.inbox cimport EV_JETSTREAM
from gnats.core.runtime.kinds cimport JETSTREAM
from gnats.core.runtime.quiesce cimport qs_offline, qs_online
from gnats.core.subjects.sublist cimport Subscription
from gnats.includes.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from gnats.includes.text cimport NUMBER_ROOM, put, put_number
from gnats.jetstream.engine.barrier cimport JsPoller, js_poller_of
from gnats.jetstream.engine.engine cimport Engine
from gnats.jetstream.engine.nativesubs cimport subscribe_native
from gnats.jetstream.engine.outbox cimport publish_flushed
from gnats.jetstream.publish.entries cimport entry_of_logged
from gnats.jetstream.publish.inbound cimport Inbound, inbound_free
from gnats.jetstream.replica.streamops cimport (
    DELETE_RANGE_OP,
    StreamMsgOp,
    decode_stream_msg,
    inbound_of,
    put_stream_msg,
    stream_msg_room,
)
from gnats.jetstream.state.entry cimport ALONE, MSG_STORED, StreamEntry
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.jetstream.stream.storing cimport store_entries
from gnats.store.base cimport STORE_DELETED, STORE_EOF, STORE_NOT_FOUND, STORE_OK, StoreMsg
from gnats.store.times.durations cimport parse_uint64
from gnats.store.writing cimport skip_msgs

cdef enum:
    MOST_MSGS = 16 * 1024        # sent, and not answered
    MOST_BYTES = 8 << 20
    AT_FIRST = 64                # messages sent before any is answered,
    FOR_EACH = 4                 # and behind each answer, until that is the most
    RANGE_ROOM = 96


cdef class Catchup(StreamBase):
    """One end of it. For the control loop's thread. close() it; `messages` counts."""

    def __init__(
        self, Engine engine not None, Account account not None, StreamCore stream not None, *, uint64_t cid
    ):
        pthread_mutex_init(&self.lock, NULL)
        self.engine = engine
        self.account = account
        self.stream = stream
        self.client = InternalSubscriber(JETSTREAM, -1, cid, engine.pollers[0], engine.state)
        self.client.register(account)

    def __dealloc__(self):
        pthread_mutex_destroy(&self.lock)

    @property
    def failure(self) -> str:
        """Why it has failed; empty when it has not."""
        return self.why[:self.why_n].decode(errors="replace")

    cdef void end(self, int what, const char *why, size_t n) noexcept nogil:
        """Do no more, and tell the control loop. The lock is held."""
        if self.ended:
            return
        self.ended = True
        self.why_n = min(n, sizeof(self.why))
        if n:
            memcpy(self.why, why, self.why_n)
        self.client.inbox.post_data(EV_JETSTREAM, <void *> self, &self.client.inbox.own, what, 0, NULL, 0)

    def close(self) -> None:
        """Send or take no more. Idempotent."""
        remove_all_subs(self.client)
        with nogil:
            pthread_mutex_lock(&self.lock)
            self.ended = True
            pthread_mutex_unlock(&self.lock)
        self.engine.bury(self)


cdef class CatchupSender(Catchup):
    """Send the messages from `first` to `last` to the inbox `to`; answers come below `ack_root`.

    `account` is the system account. CATCHUP_ENDED follows when all are sent. Raises MemoryError.
    """

    def __init__(
        self, Engine engine not None, Account account not None, StreamCore stream not None, *, uint64_t cid,
        bytes to not None, bytes ack_root not None, uint64_t first, uint64_t last,
    ):
        super().__init__(engine, account, stream, cid=cid)
        self.to = to
        self.to_p, self.to_n = PyBytes_AS_STRING(to), PyBytes_GET_SIZE(to)
        self.ack_root = ack_root + b"."
        self.root_p, self.root_n = PyBytes_AS_STRING(self.ack_root), PyBytes_GET_SIZE(self.ack_root)
        self.seq = first
        self.last = last
        subscribe_native(self.client, self.ack_root + b"*", b"", <void *> self, on_ack)

    def start(self) -> None:
        """Send the first messages."""
        cdef PollState *ps = self.engine.control
        with nogil:
            qs_online(&ps.qs)
            ps.now = monotonic_ns()
            pthread_mutex_lock(&self.lock)
            self.send_some(ps, AT_FIRST)
            pthread_mutex_unlock(&self.lock)
            end_batch_between_rounds(ps)
            qs_offline(&ps.qs)

    cdef void send_some(self, PollState *ps, uint64_t most) noexcept nogil:
        cdef JsPoller *jp = js_poller_of(ps)
        while most and not self.ended and self.seq <= self.last and (
                self.out_msgs < MOST_MSGS and self.out_bytes < MOST_BYTES):
            if not self.send_next(jp):
                return
            most -= 1
        if self.seq > self.last and not self.ended:
            publish_flushed(jp, self, self.to_p, self.to_n, NULL, 0, NULL, 0)
            self.end(CATCHUP_ENDED, NULL, 0)

    cdef bint send_next(self, JsPoller *jp) noexcept nogil:
        """Send the next message, after the range without one before it. False: it has failed."""
        cdef StoreMsg sm
        cdef StreamMsgOp op
        cdef char *data = NULL
        cdef size_t n = 0
        cdef uint64_t skip = 0, next
        cdef int rc
        cdef bint sent
        memset(&op, 0, sizeof(op))
        pthread_mutex_lock(&self.stream.store.lock)
        rc = self.stream.store.load_next(NULL, self.seq, &sm, &skip)
        if rc == STORE_OK and sm.seq <= self.last:
            op.subject.p, op.subject.n = <char *> sm.subject, sm.subject_n
            op.hdr.p, op.hdr.n = <char *> sm.hdr, sm.hdr_n
            op.msg.p, op.msg.n = <char *> sm.hdr + sm.hdr_n, sm.msg_n
            op.seq, op.ts = sm.seq, sm.ts
            data = <char *> malloc(stream_msg_room(&op))
            if data != NULL:
                n = put_stream_msg(data, &op)
        pthread_mutex_unlock(&self.stream.store.lock)
        if rc not in (STORE_OK, STORE_EOF, STORE_NOT_FOUND, STORE_DELETED):
            self.end(CATCHUP_FAILED, b"a message cannot be read", strlen(b"a message cannot be read"))
            return False
        if rc == STORE_OK and sm.seq <= self.last and data == NULL:
            self.end(CATCHUP_FAILED, b"out of memory", strlen(b"out of memory"))
            return False
        next = sm.seq if rc == STORE_OK and sm.seq <= self.last else self.last + 1
        sent = next == self.seq or self.send_range(jp, self.seq, next - self.seq)
        if sent and data != NULL:
            sent = self.send_msg(jp, data, n)
            next += 1
        free(data)
        self.seq = next
        if not sent:
            self.end(CATCHUP_FAILED, b"out of memory", strlen(b"out of memory"))
        return sent

    cdef bint send_msg(self, JsPoller *jp, const char *data, size_t n) noexcept nogil:
        cdef char[256] reply
        cdef size_t reply_n
        if self.root_n + NUMBER_ROOM > sizeof(reply):
            return False
        reply_n = put_number(put(reply, self.root_p, self.root_n), n) - reply
        self.out_msgs += 1
        self.out_bytes += n
        self.messages += 1
        return publish_flushed(jp, self, self.to_p, self.to_n, reply, reply_n, data, n)

    cdef bint send_range(self, JsPoller *jp, uint64_t first, uint64_t n) noexcept nogil:
        cdef char[RANGE_ROOM] data
        cdef size_t size = snprintf(
            data, sizeof(data), b'%c{"First":%llu,"Num":%llu}\n', <int> DELETE_RANGE_OP, <unsigned long long> first,
            <unsigned long long> n)
        return publish_flushed(jp, self, self.to_p, self.to_n, NULL, 0, data, size)


cdef bint on_ack(void *ctx, const Message *m, const Subscription *sub) noexcept nogil:
    take_ack(<CatchupSender> ctx, m)
    return True


cdef void take_ack(CatchupSender self, const Message *m) noexcept nogil:
    cdef uint64_t size = 0
    pthread_mutex_lock(&self.lock)
    if m.n > m.hdr:
        self.end(CATCHUP_FAILED, m.data + m.hdr, m.n - m.hdr)
    elif m.subject.n > self.root_n and parse_uint64(
            m.subject.p + self.root_n, m.subject.n - self.root_n, &size) and (
            self.out_msgs and size <= self.out_bytes):
        self.out_msgs -= 1
        self.out_bytes -= size
        self.send_some(m.ps, FOR_EACH)
    pthread_mutex_unlock(&self.lock)


cdef class CatchupReceiver(Catchup):
    """Store the messages that come to `inbox` behind the last one of the stream.

    `account` is the system account. CATCHUP_ENDED follows at the end. Nothing else may store messages meanwhile. Raises
    MemoryError.
    """

    def __init__(
        self, Engine engine not None, Account account not None, StreamCore stream not None, *, uint64_t cid,
        bytes inbox not None,
    ):
        super().__init__(engine, account, stream, cid=cid)
        subscribe_native(self.client, inbox, b"", <void *> self, on_message)

    cdef const char *take(self, JsPoller *jp, const char *data, size_t n) noexcept nogil:
        """Store a message, or leave a range out. Return what is wrong, NULL: nothing."""
        cdef const char *wrong
        if data[0] == DELETE_RANGE_OP:
            return skip_range(self.stream, jp, data + 1, n - 1)
        self.stream.enter()
        wrong = store_sent(self.stream, jp, data, n)
        self.stream.leave(jp.ps)
        self.messages += wrong == NULL
        return wrong


cdef bint on_message(void *ctx, const Message *m, const Subscription *sub) noexcept nogil:
    take_message(<CatchupReceiver> ctx, m)
    return True


cdef void take_message(CatchupReceiver self, const Message *m) noexcept nogil:
    cdef JsPoller *jp = js_poller_of(m.ps)
    cdef const char *wrong = NULL
    pthread_mutex_lock(&self.lock)
    if not self.ended:
        if m.n == m.hdr:
            self.end(CATCHUP_ENDED, NULL, 0)
        else:
            wrong = self.take(jp, m.data + m.hdr, m.n - m.hdr)
            if m.reply.n:
                publish_flushed(
                    jp, self, m.reply.p, m.reply.n, NULL, 0, wrong, strlen(wrong) if wrong != NULL else 0)
            if wrong != NULL:
                self.end(CATCHUP_FAILED, wrong, strlen(wrong))
    pthread_mutex_unlock(&self.lock)


cdef const char *store_sent(StreamCore s, JsPoller *jp, const char *data, size_t n) noexcept nogil:
    """The stream's lock is held."""
    cdef const char *wrong = NULL
    cdef StreamMsgOp op
    cdef StreamEntry e
    cdef Inbound m
    if decode_stream_msg(data, n, &op) < 0 or op.batch.n:
        return b"a message cannot be decoded"
    if op.seq <= s.store.last_seq and op.seq:
        wrong = NULL   # it has come before
    elif op.subject.n == 0 and op.ts == 0:
        if skip_msgs(s.store, op.seq, 1, 0) != STORE_OK:
            wrong = b"a sequence is missing"
    else:
        inbound_of(&op, &m)
        m.seq = op.seq
        m.sourced = True
        if not entry_of_logged(s, &m, ALONE, &e):
            wrong = b"out of memory"
        else:
            e.follows = True
            e.rollup = e.no_interest = False   # what those have removed is not sent
            if op.seq != s.store.last_seq + 1 or store_entries(s, jp, &e) != MSG_STORED:
                wrong = b"a message cannot be stored"
        inbound_free(&m)
    free(op.owned)
    return wrong


cdef const char *skip_range(StreamCore s, JsPoller *jp, const char *data, size_t n) noexcept nogil:
    cdef char[RANGE_ROOM] text
    cdef uint64_t first, count, last
    cdef int rc = STORE_OK
    if n >= sizeof(text):
        return b"a range cannot be decoded"
    memcpy(text, data, n)
    text[n] = 0
    first = number_behind(text, b'"First":')
    count = number_behind(text, b'"Num":')
    last = first + count - 1
    if first == 0 or count == 0 or last < first:
        return b"a range cannot be decoded"
    s.enter()
    if last > s.store.last_seq:
        if first <= s.store.last_seq:
            first = s.store.last_seq + 1
            count = last - s.store.last_seq
        rc = skip_msgs(s.store, first, count, 0)
    s.leave(jp.ps)
    if rc != STORE_OK:
        return b"a range does not follow"
    return NULL


cdef uint64_t number_behind(const char *text, const char *name) noexcept nogil:
    cdef const char *at = strstr(text, name)
    return strtoull(at + strlen(name), NULL, 10) if at != NULL else 0
