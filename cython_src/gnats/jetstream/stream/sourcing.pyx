"""Store the messages that a consumer of another stream delivers; see sourcing.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy, memset

from gnats.core.accounts.subscriptions cimport unsubscribe
from gnats.core.messages.headers cimport named_header
from gnats.core.messages.message cimport Message, message_shown
from gnats.core.messages.reserved cimport ACK_PREFIX, plain_reply
from gnats.core.runtime.clock cimport monotonic_ns
from gnats.core.runtime.quiesce cimport QsParticipant, qs_offline, qs_online, qs_register, qs_unregister
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription
from gnats.core.subjects.transform cimport SubjectTransform, transform_apply, transform_copy, transform_matches
from gnats.includes.atomics cimport loadi64, storei64
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport starts_with_text
from gnats.jetstream.consumer.acks cimport AckInfo, ack_reply_info
from gnats.jetstream.engine.barrier cimport JsPoller, js_poller_of
from gnats.jetstream.engine.nativesubs cimport subscribe_native
from gnats.jetstream.engine.outbox cimport publish_later
from gnats.jetstream.publish.inbound cimport SUBJECT_ROOM, Inbound, inbound_free, inbound_init
from gnats.jetstream.publish.inflight cimport last_in_flight, log_in_flight
from gnats.jetstream.state.entry cimport MSG_DUPLICATE, MSG_STORED, PURGE_MSGS, Outcome, StreamChange
from gnats.jetstream.state.headers cimport (
    H_REQUEST_INFO,
    H_STREAM_SOURCE,
    has_header,
    is_named_like,
    parse_headers,
    put_uint64,
    with_header,
    with_number_header,
    without_header,
    without_headers_like,
)
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.jetstream.stream.ingest cimport store_inbound
from gnats.store.base cimport STORE_OK, StoreMsg
from gnats.store.removing cimport Purge
from gnats.store.store cimport MsgStore
from gnats.store.times.durations cimport parse_int64

import enum

cdef enum:
    CAUGHT_UP = 10       # a mirror with fewer messages to come answers its origin's direct gets
    HEADER_ROOM = 1024   # bytes of a header that fit on the stack
    SOME = 256           # messages looked at under one hold of the lock


class SourceEvent(enum.IntEnum):
    """`a` of the EV_JETSTREAM events of a SourceConsumer."""

    LOST = SOURCE_LOST
    """It stores nothing more: a message is missing, or cannot be stored."""
    CAUGHT_UP = SOURCE_CAUGHT_UP
    """A mirror has nearly reached its origin's end. Posted once."""


cdef class SourceConsumer:
    """One consumer of another stream, until it is lost or closed. For the control loop's thread.

    `cname`: the consumer's name. `index_name`: names the source among the stream's sources; it is written into the
    messages, with `identity`, the origin's among streams of its name. Both are empty for a mirror.
    `transforms`: SubjectTransforms or None; the first that matches a subject transforms it. With `post_caught_up`, a
    mirror posts SOURCE_CAUGHT_UP. Raises MemoryError.
    """

    def __init__(
        self,
        StreamCore stream not None,
        bytes cname not None,
        *,
        str index_name="",
        str identity="",
        transforms=(),
        bint post_caught_up=False,
    ):
        cdef Transform *copy
        self.stream = stream
        self.cname = cname
        self.cname_p = PyBytes_AS_STRING(cname)
        self.cname_n = PyBytes_GET_SIZE(cname)
        self.mirror = not index_name
        head, _, tail = index_name.partition(" ")
        self.head = f"{head} ".encode()
        self.head_p = PyBytes_AS_STRING(self.head)
        self.head_n = PyBytes_GET_SIZE(self.head)
        self.tail = f" {tail} ".encode()
        self.tail_p = PyBytes_AS_STRING(self.tail)
        self.tail_n = PyBytes_GET_SIZE(self.tail)
        self.ident = f" {identity}".encode() if identity else b""
        self.ident_p = PyBytes_AS_STRING(self.ident)
        self.ident_n = PyBytes_GET_SIZE(self.ident)
        self.post_caught_up = post_caught_up
        compiled = [each for each in transforms if each is not None]
        self.trs = <Transform **> calloc(len(compiled) + 1, sizeof(Transform *))
        if self.trs == NULL:
            raise MemoryError
        for each in compiled:
            copy = transform_copy((<SubjectTransform?> each).compiled)
            if copy == NULL:
                raise MemoryError
            self.trs[self.ntrs] = copy
            self.ntrs += 1

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.ntrs):
            free(self.trs[i])
        free(self.trs)

    def __repr__(self) -> str:
        return f"<SourceConsumer {self.cname.decode()!r} of {self.stream.name!r}>"

    @property
    def name(self) -> str:
        """The consumer's name."""
        return self.cname.decode()

    def start(self, bytes subject not None, *, uint64_t delivered, uint64_t seen=0) -> None:
        """Store messages delivered to `subject` from now on. `delivered`: the origin's sequence behind which the
        consumer starts. `seen`: the last of the origin's sequences that this stream has from a source.

        A mirror skips the sequences up to `delivered` that it does not have. Raises ValueError for an invalid subject,
        StoreFailure when the store cannot skip them, MemoryError.
        """
        cdef QsParticipant me
        cdef StreamCore s = self.stream
        cdef int rc = STORE_OK
        if self.mirror:
            qs_register(&me)
            with nogil:
                qs_online(&me)
                s.enter()
                rc = skip_to(s, NULL, delivered, s.store.msgs == 0)
                seen = last_in_flight(s)
                s.leave(NULL)
                qs_offline(&me)
            qs_unregister(&me)
            s.store.check(rc)
        self.sseq = max(seen, delivered)
        storei64(&self.last, monotonic_ns())
        self.sub = subscribe_native(s.client, subject, b"", <void *> self, process_inbound)

    def close(self) -> None:
        """Store nothing more. Idempotent. Call it before the stream unsubscribes."""
        pthread_mutex_lock(&self.stream.store.lock)
        self.closed = True
        pthread_mutex_unlock(&self.stream.store.lock)
        if self.sub != NULL:
            unsubscribe(self.stream.client, self.sub)
            self.sub = NULL
            self.stream.engine.bury(self)

    def numbers(self) -> tuple[int, int, int, int]:
        """The fields (sseq, stored, lag, last): see sourcing.pxd."""
        cdef uint64_t sseq, stored, lag
        pthread_mutex_lock(&self.stream.store.lock)
        sseq = self.sseq
        stored = self.stored
        lag = self.lag
        pthread_mutex_unlock(&self.stream.store.lock)
        return sseq, stored, lag, loadi64(&self.last)

    cdef void lose(self) noexcept nogil:
        self.closed = True
        self.stream.client.inbox.post_jetstream(<void *> self, SOURCE_LOST, 0, NULL, 0)


# -- messages ----------------------------------------------------------------------------------------------------------

cdef bint process_inbound(void *ctx, const Message *m, const Subscription *sub) noexcept nogil:
    receive(<SourceConsumer> ctx, js_poller_of(m.ps), m)
    return True


cdef void receive(SourceConsumer c, JsPoller *jp, const Message *m) noexcept nogil:
    cdef size_t n = m.n - m.hdr
    cdef Slice subject = message_shown(m), reply = plain_reply(&m.reply)
    cdef AckInfo info
    storei64(&c.last, jp.ps.now)
    if n == 0 and starts_with_text(m.data, m.hdr, b"NATS/1.0 100 "):
        process_control(c, jp, &m.reply, m.data, m.hdr)
    elif is_from(c, &reply) and ack_reply_info(reply.p, reply.n, &info) and info.dc <= 1:
        store_sourced(c, c.stream, jp, &subject, m.data, m.hdr, n, &info)


cdef bint is_from(SourceConsumer c, const Slice *reply) noexcept nogil:
    """Is it the reply subject of a message of this consumer (consumerFromAckReply)?"""
    cdef const char *p = reply.p
    cdef const char *end = reply.p + reply.n
    cdef size_t dots = 0, i, skip, _
    if not starts_with_text(p, reply.n, ACK_PREFIX):
        return False
    for i in range(reply.n):
        dots += p[i] == c'.'
    skip = 3 if dots == 8 else 5     # tokens before the consumer's name, in version 1 and 2
    for _ in range(skip):
        p = <const char *> memchr(p, c'.', end - p)
        if p == NULL:
            return False
        p += 1
    return <size_t> (end - p) > c.cname_n and p[c.cname_n] == c'.' and memcmp(p, c.cname_p, c.cname_n) == 0


cdef void process_control(SourceConsumer c, JsPoller *jp, const Slice *reply, char *hdr, size_t n) noexcept nogil:
    """Handle a heartbeat, or a flow control request, which is answered when the messages before it are stored."""
    cdef char[128] answer
    cdef Slice value
    cdef size_t size
    cdef int64_t dseq = 0
    pthread_mutex_lock(&c.stream.store.lock)
    if c.closed:
        pthread_mutex_unlock(&c.stream.store.lock)
        return
    if reply.n:
        size = with_number_header(answer, NULL, 0, b"Nats-Last-Consumer", c.dseq)
        size = with_number_header(answer, answer, size, b"Nats-Last-Stream", c.sseq)
        c.stream.log.confirm(c.stream, jp, reply, answer, size)
        pthread_mutex_unlock(&c.stream.store.lock)
        return
    value = named_header(hdr, n, b"Nats-Last-Consumer")
    if value.p != NULL:
        dseq = parse_int64(value.p, value.n)
    if dseq > 0 and <uint64_t> dseq != c.dseq:
        value.n = 0
        c.lose()
    else:
        value = named_header(hdr, n, b"Nats-Consumer-Stalled")
    pthread_mutex_unlock(&c.stream.store.lock)
    if value.p != NULL and value.n:
        publish_later(jp, c.stream, value.p, value.n, answer, 0, NULL, 0, False)


cdef void store_sourced(
    SourceConsumer c, StreamCore s, JsPoller *jp, const Slice *subject, char *hdr, size_t hdr_n, size_t n,
    const AckInfo *info
) noexcept nogil:
    cdef char[HEADER_ROOM] some
    cdef char[SUBJECT_ROOM] few
    cdef char *changed = few
    cdef Inbound m
    cdef size_t i, size
    inbound_init(&m)
    m.sourced = True
    m.subject = subject[0]
    m.hdr = hdr
    m.hdr_n = hdr_n
    m.msg = hdr + hdr_n
    m.n = n
    m.seq = info.sseq if c.mirror else 0
    m.ts = info.ts if c.mirror else 0
    if not inbound_header(c, &m, some, info.sseq):
        return
    for i in range(c.ntrs):
        if transform_matches(c.trs[i], subject.p, subject.n):
            size = transform_apply(c.trs[i], subject.p, subject.n, &jp.ps.rng, True, few, SUBJECT_ROOM)
            if size > SUBJECT_ROOM:
                changed = <char *> malloc(size)
                if changed == NULL:
                    free(m.owned)
                    return
                transform_apply(c.trs[i], subject.p, subject.n, &jp.ps.rng, True, changed, size)
            m.subject.p = changed
            m.subject.n = size
            break
    s.enter()
    if not c.closed and expected(c, s, jp, info):
        note_stored(c, info, store_inbound(s, jp, &m))
    s.leave(jp.ps)
    if changed != few:
        free(changed)
    inbound_free(&m)


cdef bint inbound_header(SourceConsumer c, Inbound *m, char *some, uint64_t sseq) noexcept nogil:
    """Remove header lines that were for the origin alone; for a source, add the source header.

    The message's memory is the origin's, so a changed header is a copy: in `some` if it fits. False when out of memory.
    """
    cdef size_t room = m.hdr_n + 2 * 64
    cdef char *hdr = some
    cdef char *value
    cdef size_t n
    if m.hdr_n:
        parse_headers(m.hdr, m.hdr_n, &m.h)
    if c.mirror and not has_header(&m.h, H_REQUEST_INFO) and not (m.hdr_n and (
            is_named_like(m.hdr, m.hdr_n, b"Nats-Expected-")
            or is_named_like(m.hdr, m.hdr_n, b"Nats-Batch-"))):
        return True
    room += 2 * (c.head_n + 20 + c.tail_n + m.subject.n + c.ident_n)
    if room > HEADER_ROOM:
        hdr = m.owned = <char *> malloc(room)
        if hdr == NULL:
            return False
    memcpy(hdr, m.hdr, m.hdr_n)
    n = m.hdr_n
    if n:
        n = without_headers_like(hdr, n, b"Nats-Expected-")
        n = without_headers_like(hdr, n, b"Nats-Batch-")
        if has_header(&m.h, H_REQUEST_INFO):
            n = without_header(hdr, n, b"Nats-Request-Info")
    if not c.mirror:
        if has_header(&m.h, H_STREAM_SOURCE):
            n = without_header(hdr, n, b"Nats-Stream-Source")
        value = hdr + room - (c.head_n + 20 + c.tail_n + m.subject.n + c.ident_n)
        n = with_header(hdr, hdr, n, b"Nats-Stream-Source", value, source_header(c, value, &m.subject, sseq))
    m.hdr = hdr
    m.hdr_n = n
    m.h.found = 0
    if n:
        parse_headers(hdr, n, &m.h)
    return True


cdef size_t source_header(SourceConsumer c, char *out, const Slice *subject, uint64_t sseq) noexcept nogil:
    """Write <stream> <sequence> <filters> <destinations> <subject>[ <identity>]. Return its length."""
    cdef char *p = out
    memcpy(p, c.head_p, c.head_n)
    p += c.head_n
    p += put_uint64(p, sseq)
    memcpy(p, c.tail_p, c.tail_n)
    p += c.tail_n
    memcpy(p, subject.p, subject.n)
    p += subject.n
    memcpy(p, c.ident_p, c.ident_n)
    return p + c.ident_n - out


cdef bint expected(SourceConsumer c, StreamCore s, JsPoller *jp, const AckInfo *info) noexcept nogil:
    """Return whether this is the next message to store. A mirror skips the sequences before it. The lock is held."""
    if info.sseq <= c.sseq:
        if info.dseq == c.dseq + 1:
            c.dseq += 1
        return False
    if info.dseq != c.dseq + 1 and not (c.mirror and info.sseq == c.sseq + 1):
        if c.mirror or info.dseq > c.dseq:
            c.lose()
        return False
    if c.mirror:
        # A mirror has its origin's sequences. If this stream was changed meanwhile, begin anew.
        if last_in_flight(s) != c.sseq:
            c.lose()
            return False
        if skip_to(s, jp, info.sseq - 1, s.store.last_seq == 0) != STORE_OK:
            c.lose()
            return False
    return True


cdef int skip_to(StreamCore s, JsPoller *jp, uint64_t last, bint anew) noexcept nogil:
    """Have the log leave out the sequences up to `last` that the stream does not have. anew: the store has no message;
    one of a single server begins anew behind them. Return a StoreError. The lock is held."""
    cdef StreamChange change
    cdef Purge part
    if last <= last_in_flight(s):
        return STORE_OK
    if not anew or log_in_flight(s) != NULL:
        return s.log.skip(s, jp, last)
    memset(&change, 0, sizeof(change))
    change.op = PURGE_MSGS
    change.seq = last + 1
    part.begun = False
    return s.log.change(s, &change, &part)


cdef void note_stored(SourceConsumer c, const AckInfo *info, Outcome outcome) noexcept nogil:
    """Note the outcome of storing a message; the lock is held."""
    if outcome != MSG_STORED and not (outcome == MSG_DUPLICATE and not c.mirror):
        c.lose()
        return
    c.sseq = info.sseq
    if outcome == MSG_STORED:
        c.stored = info.sseq
    c.dseq = info.dseq
    c.lag = info.pending - 1 if info.pending else 0
    if c.post_caught_up and info.pending < CAUGHT_UP:
        c.post_caught_up = False
        c.stream.client.inbox.post_jetstream(<void *> c, SOURCE_CAUGHT_UP, 0, NULL, 0)


# -- the last stored message of each source ----------------------------------------------------------------------------

# One source to look for.
cdef struct Wanted:
    Slice name           # of the origin, with a hash of its external API prefix
    Slice head           # the index name's first word
    Slice tail           # the rest of the index name
    uint64_t stop        # do not look below this sequence of this stream
    uint64_t seq         # origin's sequence of the last message found; 0: none
    Slice ident          # its identity, malloc'd


cdef inline Slice slice_of(bytes b):
    cdef Slice s
    s.p = PyBytes_AS_STRING(b)
    s.n = PyBytes_GET_SIZE(b)
    return s


cdef inline bint same(const Slice *a, const Slice *b) noexcept nogil:
    return a.n == b.n and memcmp(a.p, b.p, a.n) == 0


def last_sourced(MsgStore store not None, wanted not None) -> dict:
    """Find the last message of each source by the source headers in the store: {index name: (origin's sequence,
    identity)}, without sources that have none. `wanted`: (stream name, index name, first sequence to look at) for each.

    Any thread. Raises MemoryError.
    """
    cdef list rows = [
        (name.encode(), *(part.encode() for part in index_name.split(" ", 1)), stop)
        for name, index_name, stop in wanted
    ]
    cdef uint32_t n = <uint32_t> len(rows), i
    cdef Wanted *all = <Wanted *> calloc(n + 1, sizeof(Wanted))
    if all == NULL:
        raise MemoryError
    try:
        for i in range(n):
            name, head, tail, stop = rows[i]
            all[i].name = slice_of(name)
            all[i].head = slice_of(head)
            all[i].tail = slice_of(tail)
            all[i].stop = stop
        with nogil:
            look_back(store, all, n)
        found = {}
        for i in range(n):
            if all[i].seq:
                ident = all[i].ident.p[:all[i].ident.n].decode("utf-8", "replace") if all[i].ident.n else ""
                found[wanted[i][1]] = all[i].seq, ident
        return found
    finally:
        for i in range(n):
            free(all[i].ident.p)
        free(all)


cdef void look_back(MsgStore s, Wanted *all, uint32_t n) noexcept nogil:
    cdef StoreMsg sm
    cdef Slice value
    cdef uint64_t at = <uint64_t> -1, stop = <uint64_t> -1
    cdef uint32_t i, _
    cdef bint more = True
    while more:
        pthread_mutex_lock(&s.lock)
        for _ in range(SOME):
            stop = <uint64_t> -1
            for i in range(n):
                if all[i].seq == 0:
                    stop = min(stop, all[i].stop)
            if stop == <uint64_t> -1 or at == 0 or s.load_prev(NULL, at, &sm, NULL) != STORE_OK or sm.seq < stop:
                more = False
                break
            at = sm.seq - 1
            if sm.hdr_n:
                value = named_header(<char *> sm.hdr, sm.hdr_n, b"Nats-Stream-Source")
                if value.p != NULL:
                    note_source(all, n, sm.seq, value)
        pthread_mutex_unlock(&s.lock)


cdef void note_source(Wanted *all, uint32_t n, uint64_t at, Slice value) noexcept nogil:
    """Read a source header (streamAndSeq); at: of its message, in this stream."""
    cdef Slice[6] fields
    cdef Slice tail
    cdef AckInfo info
    cdef uint32_t nfields = split_fields(&value, fields), i
    cdef int64_t seq
    cdef bint old = nfields == 2
    tail.p = NULL
    tail.n = 0
    if nfields == 1:
        # as it was first: the reply subject of the message
        if not ack_reply_info(value.p, value.n, &info):
            return
        seq = <int64_t> info.sseq
        stream_of_reply(&value, &fields[0])
        old = True
    elif nfields == 3:
        return
    else:
        seq = parse_int64(fields[1].p, fields[1].n)
    if seq <= 0:
        return
    if not old:
        tail.p = fields[2].p
        tail.n = fields[3].p + fields[3].n - fields[2].p
    for i in range(n):
        if all[i].seq or at < all[i].stop:
            continue
        if same(&fields[0], &all[i].name) if old else same(&fields[0], &all[i].head) and same(&tail, &all[i].tail):
            all[i].seq = <uint64_t> seq
            if nfields >= 6 and fields[5].n:
                all[i].ident.p = <char *> malloc(fields[5].n)
                if all[i].ident.p != NULL:
                    all[i].ident.n = fields[5].n
                    memcpy(all[i].ident.p, fields[5].p, fields[5].n)


cdef uint32_t split_fields(const Slice *value, Slice *fields) noexcept nogil:
    """Split a source header at single blanks. Stop after six fields. Return their number."""
    cdef uint32_t n = 1
    cdef size_t i
    fields[0].p = value.p
    fields[0].n = 0
    for i in range(value.n):
        if value.p[i] != c' ':
            fields[n - 1].n += 1
        elif n == 6:
            break
        else:
            fields[n].p = value.p + i + 1
            fields[n].n = 0
            n += 1
    return n


cdef void stream_of_reply(const Slice *reply, Slice *out) noexcept nogil:
    cdef char *p = reply.p
    cdef char *end = reply.p + reply.n
    cdef size_t dots = 0, i, _
    for i in range(reply.n):
        dots += p[i] == c'.'
    for _ in range(2 if dots == 8 else 4):
        p = <char *> memchr(p, c'.', end - p) + 1
    out.p = p
    out.n = <char *> memchr(p, c'.', end - p) - p
