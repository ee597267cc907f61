"""What imports do to a connection; see imports.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from gnats.core.account cimport (
    REPLY_ROOM,
    Account,
    ImportSub,
    ServiceImport,
    StreamImport,
    account_mappings,
    import_source,
    import_sub,
    import_to,
    stream_import_release,
    stream_import_stays,
)
from gnats.core.connection cimport CTL_IMPORTS, READ_ERROR
from gnats.core.headers cimport begin_header_without
from gnats.core.inbox cimport EV_LATENCY, EV_RESPONSES, Event, Inbox
from gnats.core.mappings cimport Mappings, select_mapped_subject
from gnats.core.msgtrace cimport MsgTrace, Traced, set_trace_dest, trace_service_import
from gnats.core.overlap cimport ALL_OF_IT, CROSSING, NO_OVERLAP, PART_OF_IT, import_overlap
from gnats.core.parser cimport ACCOUNT, CLIENT, JETSTREAM, LEAF, PubArg, Slice
from gnats.core.pollstate cimport PollState
from gnats.core.quoting cimport put_json_string
from gnats.core.quiesce cimport qs_retire
from gnats.core.records cimport LOG_CLOSING_OUT_OF_MEMORY, LOG_IMPORT_SUBSCRIPTION, TRACE_IN
from gnats.core.responses cimport (
    SINGLETON,
    Expected,
    Measured,
    ServiceExport,
    expected_header,
    expected_other,
    export_release,
)
from gnats.core.results cimport results_match
from gnats.core.sampling cimport sampled_by_header
from gnats.core.state cimport ServerState
from gnats.core.sublist cimport (
    SL_OK,
    SUB_RESPONSES,
    SUB_SHADOW,
    MatchResult,
    Subscription,
    sub_new,
    sub_queue,
    sub_sid,
    sub_subject,
)
from gnats.core.subtable cimport (
    SOME,
    subtable_add,
    subtable_find,
    subtable_remove,
    subtable_take,
    subtable_take_some,
)
from gnats.core.transform cimport Transform, transform_apply
from gnats.includes.atomics cimport exchange64, load8, load64, load_ptr_acquire, loadi64, store8, unlikely
from gnats.includes.linux cimport monotonic_ns, realtime_ns
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock

cdef enum:
    ROOM = 512         # bytes of a subject that need no memory but the stack's
    MAX_HOPS = 128     # service imports that one message goes through: each takes of the stack
    INFO_ROOM = 128    # of a header beside the names in it
    INFO_HEADER_N = 17

cdef const char *INFO_HEADER = b"Nats-Request-Info"


cdef char *transformed(
    const Transform *t, const Slice *subject, uint64_t *rng, char *few, size_t room, size_t *n
) noexcept nogil:
    cdef char *out = few
    cdef size_t size = room
    n[0] = transform_apply(t, subject.p, subject.n, rng, True, out, size)
    while n[0] > size:
        if out != few:
            free(out)
        size = n[0]
        out = <char *> malloc(size)
        if out == NULL:
            return NULL
        n[0] = transform_apply(t, subject.p, subject.n, rng, True, out, size)
    return out


cdef bint is_jetstream_api(const ServiceImport *si) noexcept nogil:
    """Is it the one import of all of the JetStream API?"""
    return si.to_system and si.to_n == 9 and memcmp(si.to, b"$JS.API.>", 9) == 0


cdef bint served_here(const Slice *subject) noexcept nogil:
    """Is this a request to the JetStream API that streams and consumers subscribe to in the account itself? It need not
    go through the import."""
    return (subject.n > 19 and memcmp(subject.p, b"$JS.API.DIRECT.GET.", 19) == 0) or (
        subject.n > 26 and memcmp(subject.p, b"$JS.API.CONSUMER.MSG.NEXT.", 26) == 0)


cdef bint through_response(const Hop *hop) noexcept nogil:
    """Has the message been a response on its way? The requester has chosen its subject then, and may not be allowed to
    ask there, so it does not ask the JetStream API."""
    while hop != NULL:
        if not hop.request:
            return True
        hop = hop.before
    return False


cdef class Importer(Traced):
    """A connection whose account may import; see Client."""

    def __dealloc__(self):
        if self.ps != NULL:   # see Client
            self.drop_all_shadows()
        free(self.details)

    def renew_imports(self) -> None:
        """The account imports other streams than before: have the owner look at the subscriptions again."""
        self.request(CTL_IMPORTS, 0)

    def set_details(self, bytes head not None, bytes mid not None, bytes tail not None) -> None:
        """What services are told of this client where an import shares it: members of a JSON object, each but the
        first with a comma before it, that come before the account, before the round trip time and behind the
        server. Raises MemoryError."""
        cdef ClientDetails *d = <ClientDetails *> malloc(sizeof(ClientDetails) + len(head) + len(mid) + len(tail))
        cdef void *old
        if d == NULL:
            raise MemoryError
        d.head_n = len(head)
        d.mid_n = len(mid)
        d.tail_n = len(tail)
        memcpy(d.data, PyBytes_AS_STRING(head), d.head_n)
        memcpy(d.data + d.head_n, PyBytes_AS_STRING(mid), d.mid_n)
        memcpy(d.data + d.head_n + d.mid_n, PyBytes_AS_STRING(tail), d.tail_n)
        old = <void *> exchange64(<uint64_t *> &self.details, <uint64_t> d)
        if old != NULL:
            qs_retire(old)

    # -- shadows ---------------------------------------------------------------------------------------------------

    cdef void add_shadows(self, Account account, const Subscription *s, bint some) noexcept nogil:
        """A shadow for each import that `s` is about (addShadowSubscriptions)."""
        cdef StreamImport *im
        cdef uint32_t i = 0
        cdef char *common
        cdef size_t n
        cdef int how
        while True:
            # One at a time, and held while it is used: meanwhile the imports may change, and then we are told.
            im = NULL
            pthread_mutex_lock(&account.lock)
            while account.streams != NULL and i < account.streams.n and im == NULL:
                im = account.streams.imports[i]
                how = NO_OVERLAP
                if not some or not self.has_shadow(s, im):
                    how = import_overlap(sub_subject(s), s.subject_len, import_to(im), im.to_n, &common, &n)
                if how == NO_OVERLAP:
                    im = NULL
                else:
                    im.refs += 1
                i += 1
            pthread_mutex_unlock(&account.lock)
            if im == NULL:
                return
            if not self.add_shadow(s, im, how, common, n):
                stream_import_release(im)
            free(common)

    cdef bint has_shadow(self, const Subscription *s, const StreamImport *im) noexcept nogil:
        cdef Subscription *shadow = subtable_find(&self.shadows, sub_sid(s), s.sid_len)
        while shadow != NULL:
            if (
                import_sub(shadow).what == <void *> im and shadow.sid_len == s.sid_len
                and memcmp(sub_sid(shadow), sub_sid(s), s.sid_len) == 0
            ):
                return True
            shadow = shadow.next
        return False

    cdef bint add_shadow(
        self, const Subscription *s, StreamImport *im, int how, const char *common, size_t n
    ) noexcept nogil:
        cdef char[ROOM] few
        cdef char *subject = NULL
        cdef Slice wanted
        cdef Subscription *shadow
        wanted.p = <char *> common if how == CROSSING else <char *> sub_subject(s)
        wanted.n = n if how == CROSSING else s.subject_len
        if how != ALL_OF_IT and im.back != NULL:
            subject = transformed(im.back, &wanted, &self.ps.rng, few, ROOM, &wanted.n)
            if subject == NULL:
                return False
            wanted.p = subject
        elif how == ALL_OF_IT or (how == PART_OF_IT and not im.use_published):
            wanted.p = <char *> import_source(im)
            wanted.n = im.source_n
        shadow = sub_new(
            <void *> self, self.kind, wanted.p, wanted.n, sub_queue(s), s.queue_len, sub_sid(s), s.sid_len,
            sizeof(ImportSub))
        if subject != NULL and subject != few:
            free(subject)
        if shadow == NULL:
            return False
        shadow.flags = SUB_SHADOW
        shadow.internal = s.internal
        import_sub(shadow).what = im
        self.log_import(shadow, (<Account> im.exporter).info_name)
        if not subtable_add(&self.shadows, shadow):
            free(import_sub(shadow))
            return False
        if (<Account> im.exporter).sublist.insert(shadow) != SL_OK:
            subtable_remove(&self.shadows, shadow)
            free(import_sub(shadow))
            return False
        return True

    cdef void log_import(self, const Subscription *shadow, Slice account) noexcept nogil:
        cdef size_t n = shadow.subject_len + 1 + account.n
        cdef char *data
        if not load8(&(<ServerState> self.server)._debug):
            return
        data = <char *> malloc(n)
        if data == NULL:
            return
        memcpy(data, sub_subject(shadow), shadow.subject_len)
        data[shadow.subject_len] = 0
        memcpy(data + shadow.subject_len + 1, account.p, account.n)
        self.debugf(LOG_IMPORT_SUBSCRIPTION, 0, data, n)
        free(data)

    cdef void drop_shadows(self, const Subscription *s) noexcept nogil:
        cdef Subscription *shadow = subtable_find(&self.shadows, sub_sid(s), s.sid_len)
        while shadow != NULL:
            subtable_remove(&self.shadows, shadow)
            close_shadow(shadow)
            shadow = subtable_find(&self.shadows, sub_sid(s), s.sid_len)

    cdef void drop_all_shadows(self) noexcept nogil:
        close_chain(subtable_take(&self.shadows))

    cdef void drop_some_shadows(self) noexcept nogil:
        cdef Subscription *some[SOME]
        cdef size_t i, n = subtable_take_some(&self.shadows, &self.leaving_at, some)
        for i in range(n):
            close_shadow(some[i])

    cdef void renew_shadows(self) noexcept nogil:
        """Those of imports that are no more go; of imports that stay they stay, so that nothing is missed or heard
        twice."""
        cdef Subscription *old = subtable_take(&self.shadows)
        cdef Subscription *gone = NULL
        cdef Subscription *s
        cdef uint32_t i
        while old != NULL:
            s = old
            old = old.next
            if not (
                stream_import_stays(<Account> self.account, <StreamImport *> import_sub(s).what)
                and subtable_add(&self.shadows, s)
            ):
                s.next = gone
                gone = s
        if self.subs.n:
            for i in range(self.subs.mask + 1):
                s = self.subs.slots[i]
                while s != NULL:
                    self.add_shadows(<Account> self.account, s, True)
                    s = s.next
        close_chain(gone)

    cdef void forget_requests(self, Account account, const Subscription *s) noexcept nogil:
        cdef Expected *lost
        cdef Expected *following
        if load64(&account.nreverse) == 0:
            return
        if s == NULL:
            lost = account.check_for_reverse_entries(NULL, 0)
        elif s.subject_len > 3 and memcmp(sub_subject(s), b"_R_.", 4) == 0:
            return
        else:
            lost = account.check_for_reverse_entries(sub_subject(s), s.subject_len)
        while lost != NULL:
            following = lost.newer
            if lost.tracked:
                self.report(
                    lost.se, 408, lost.requester, 0, self.ps.now - lost.ts, lost.share, expected_header(lost),
                    lost.header_n)
            release_expected(lost)
            lost = following

    # -- mappings --------------------------------------------------------------------------------------------------

    cdef void map_subject(self, Mappings *mappings) noexcept nogil:
        """Replace the subject that was published by the one it is mapped to, if it is."""
        cdef PubArg *pa = &self.pa
        cdef PollState *ps = self.ps
        cdef size_t n = 0
        cdef char *grown
        while True:
            if not select_mapped_subject(
                    mappings, pa.subject.p, pa.subject.n, &ps.rng, ps.mapped, ps.mapped_len, &n):
                return
            if n < ps.mapped_len:
                break
            grown = <char *> realloc(ps.mapped, n + 256)
            if grown == NULL:
                self.log(LOG_CLOSING_OUT_OF_MEMORY, 0, NULL, 0)
                self.close_connection_nogil(READ_ERROR)
                pa.subject.n = 0
                return
            ps.mapped = grown
            ps.mapped_len = n + 256
        if unlikely(self.trace):
            self.trace_mapping(ps.mapped, n)
        pa.subject.p = ps.mapped
        pa.subject.n = n
        pa.canonical = 0

    cdef void trace_mapping(self, const char *to, size_t n) noexcept nogil:
        cdef PubArg *pa = &self.pa
        cdef char *line = <char *> malloc(pa.subject.n + n + 4)
        if line == NULL:
            return
        put(put(put(line, pa.subject.p, pa.subject.n), b" -> ", 4), to, n)
        self.trace_line(TRACE_IN, b"MAPPING", 7, line, pa.subject.n + n + 4)
        free(line)

    # -- services --------------------------------------------------------------------------------------------------

    cdef bint deliver_import(self, const Subscription *s, char *msg, size_t n) noexcept nogil:
        cdef void *what = import_sub(s).what
        if s.flags == SUB_RESPONSES:
            # Received in any case, for nats-server: who answers too late is not told.
            self.process_service_import_response(<Account> what, msg, n)
            return True
        return self.process_service_import(<ServiceImport *> what, msg, n)

    cdef bint should_sample(self, ServiceExport *se, const char *msg, bint *by_header) noexcept nogil:
        cdef uint8_t percent = load8(&se.sampling)
        by_header[0] = False
        if percent >= 100 or (percent and next_random(&self.ps.rng) // 7 % 100 <= percent):
            return True
        by_header[0] = self.pa.hdr > 0 and sampled_by_header(msg, self.pa.hdr)
        return by_header[0]

    cdef void report(
        self, ServiceExport *se, int status, uint64_t requester, uint64_t responder, int64_t elapsed, bint share,
        const char *header, size_t n
    ) noexcept nogil:
        """Tell the control plane of a measurement."""
        cdef Measured m
        cdef Event *ev = (<Inbox> self.inbox).new_event(
            EV_LATENCY, NULL, &self.source, sizeof(Measured) + n)
        if ev == NULL:
            return
        ev.a = <int64_t> se.id
        ev.b = status
        m.requester = requester
        m.responder = responder
        m.elapsed = elapsed
        m.when = realtime_ns()
        m.share = share
        memcpy(ev.data, &m, sizeof(Measured))   # the data of an event is not aligned
        if n:
            memcpy(ev.data + sizeof(Measured), header, n)
        (<Inbox> self.inbox).post_caused(ev, &self.source)

    cdef void expect(self, const ServiceExport *se) noexcept nogil:
        """Have the control plane see to it that responses to a service are forgotten when they do not come."""
        (<Inbox> self.inbox).post_data(EV_RESPONSES, NULL, &self.source, <int64_t> se.id, 0, NULL, 0)

    cdef bint enter(self, Hop *hop) noexcept nogil:
        """Go through another import; False when the message has been through it, or through too many."""
        cdef Hop *before = self.hop
        hop.before = before
        hop.depth = before.depth + 1 if before != NULL else 1
        if hop.depth > MAX_HOPS:
            return False
        while before != NULL:
            if before.se == hop.se:
                return False
            before = before.before
        self.hop = hop
        return True

    cdef bint process_service_import(self, ServiceImport *si, char *msg, size_t n) noexcept nogil:
        """A request leaves for the account that serves it; whether somebody received it there."""
        cdef char[ROOM] few, few_mapped
        cdef char[REPLY_ROOM] reply
        cdef char[24] sizes
        cdef PubArg saved = self.pa
        cdef Hop hop
        cdef Slice to
        cdef char *made = NULL
        cdef char *mapped = NULL
        cdef char *request = msg
        cdef char *told = NULL
        cdef char *noted = NULL
        cdef char[REPLY_ROOM] dest
        cdef char[24] noted_sizes
        cdef MsgTrace *t = self.mt
        cdef Slice traced_to = t.dest if t != NULL else self.pa.subject
        cdef Expected *e
        cdef size_t rn = 0
        cdef bint expected = False, delivered = False, arm = False, tracked = False, by_header = False, chained
        hop.se = si.se
        hop.share = load8(&si.share)
        if load8(&si.invalid) or (
                is_jetstream_api(si) and (served_here(&saved.subject) or through_response(self.hop))):
            return False
        hop.request = 1
        hop.account = si.account
        hop.info.p = NULL
        hop.info.n = 0
        # What the first import of a chain tells stays; the server's name is added where somebody is to know it.
        chained = self.hop != NULL and self.hop.request
        if chained:
            hop.details = self.hop.details
            hop.server = self.hop.server or hop.share or si.to_system
            hop.reply = self.hop.reply
        else:
            hop.details = self.hop.share if self.hop != NULL else hop.share
            hop.reply = saved.reply
            if saved.reply.n < 4 or memcmp(saved.reply.p + saved.reply.n - 4, b".$FI", 4) != 0:
                hop.reply.n = 0
            hop.server = hop.details or si.to_system
        if not self.enter(&hop):
            return False
        to.p = si.to
        to.n = si.to_n
        if si.tr != NULL:
            made = transformed(si.tr, &saved.subject, &self.ps.rng, few, ROOM, &to.n)
            to.p = made
        elif si.use_published:
            to = saved.subject
        if to.p != NULL:
            mapped = map_in(<Account> si.exporter, &to, &self.ps.rng, few_mapped, ROOM)
        if unlikely(load8(&si.se.sampling) or load8(&si.se.by_header)):
            tracked = self.should_sample(si.se, msg, &by_header)
            if tracked and not saved.reply.n:
                self.report(si.se, 400, self.cid, 0, 0, hop.share, msg, saved.hdr if by_header else 0)
        if saved.reply.n > 8 and memcmp(saved.reply.p, b"$JS.ACK.", 8) == 0:
            rn = saved.reply.n
        elif saved.reply.n:
            rn = (<Account> si.exporter).expect_response(
                <Account> si.account, si.se, saved.reply.p, saved.reply.n, hop.share, self.cid,
                tracked and si.se.response_type == SINGLETON, msg, saved.hdr if by_header else 0,
                next_random(&self.ps.rng), monotonic_ns() if tracked else self.ps.now, reply, &arm)
            expected = rn > 0
            if arm:
                self.expect(si.se)
        if self.kind == CLIENT or self.kind == LEAF or self.kind == JETSTREAM or self.kind == ACCOUNT:
            request = told = self.request_header(<Account> si.account, &hop, chained, msg, &n, sizes)
        if unlikely(t != NULL) and request != NULL and to.p != NULL:
            request = noted = self.trace_import(
                <Account> si.account, si.se, <Account> si.exporter, &saved.subject, &to, False, request, &n, dest,
                noted_sizes)
        if request != NULL and to.p != NULL and (rn or not saved.reply.n):
            delivered = self.route_in(
                <Account> si.exporter, to.p, to.n, <char *> reply if expected else saved.reply.p, rn, request, n)
        self.hop = hop.before
        self.pa = saved
        if unlikely(t != NULL):
            self.end_trace_import(<Account> si.exporter, t, &traced_to)
            if t.only and expected:
                release_expected((<Account> si.exporter).take_response(reply, rn))
                expected = False
        if expected and not delivered:
            e = (<Account> si.exporter).take_response(reply, rn)
            if e != NULL and e.tracked:
                self.report(
                    e.se, 503, e.requester, 0, 0, e.share, expected_header(e), e.header_n)
            release_expected(e)
        free(told)    # hop.info was in it
        free(noted)
        if made != few:
            free(made)
        if mapped != few_mapped:
            free(mapped)
        return delivered

    cdef bint process_service_import_response(self, Account account, char *msg, size_t n) noexcept nogil:
        """A response goes to who asked; whether it was received."""
        cdef PubArg saved = self.pa
        cdef char[REPLY_ROOM] reply
        cdef Hop hop
        cdef size_t rn = 0
        cdef bint delivered = False, expected = False, arm = False
        cdef MsgTrace *t = self.mt
        cdef Slice to
        cdef char *noted = NULL
        cdef size_t whole = n
        cdef char[24] sizes
        cdef Expected *e = account.find_response(saved.subject.p, saved.subject.n)
        if e == NULL:
            return False
        hop.se = e.se
        hop.share = e.share
        hop.request = hop.details = hop.server = 0
        hop.account = NULL
        hop.reply.n = hop.info.n = 0
        if unlikely(e.tracked):
            self.report(
                e.se, 200, e.requester, self.cid, monotonic_ns() - e.ts, e.share, expected_header(e), e.header_n)
        if not self.enter(&hop):
            release_expected(e)
            return False
        if saved.reply.n > 8 and memcmp(saved.reply.p, b"$JS.ACK.", 8) == 0:
            rn = saved.reply.n
        elif saved.reply.n:
            # the responder asks back
            rn = (<Account> e.account).expect_response(
                account, e.se, saved.reply.p, saved.reply.n, e.share, self.cid, False, NULL, 0,
                next_random(&self.ps.rng), self.ps.now, reply, &arm)
            expected = rn > 0
        if unlikely(t != NULL):
            to.p = <char *> expected_other(e)
            to.n = e.other_n
            msg = noted = self.trace_import(
                account, e.se, <Account> e.account, &saved.subject, &to, True, msg, &n, NULL, sizes)
        if msg != NULL:
            delivered = self.route_in(
                <Account> e.account, expected_other(e), e.other_n, <char *> reply if expected else saved.reply.p, rn,
                msg, n)
        self.mt = t
        free(noted)
        self.hop = hop.before
        self.pa = saved
        if expected and not delivered:
            release_expected((<Account> e.account).take_response(reply, rn))
        if e.rt != SINGLETON:
            # an empty message is the last
            if delivered and whole > 2:
                account.renew_response(saved.subject.p, saved.subject.n, self.ps.now)
            else:
                release_expected(account.take_response(saved.subject.p, saved.subject.n))
        release_expected(e)
        return delivered

    cdef bint route_in(
        self, Account account, const char *to, size_t tn, const char *reply, size_t rn, char *msg, size_t n
    ) noexcept nogil:
        """Deliver the message in hand to the subscribers of a subject in another account."""
        cdef MatchResult *r
        self.pa.subject.p = <char *> to
        self.pa.subject.n = tn
        self.pa.reply.p = <char *> reply if rn else NULL
        self.pa.reply.n = rn
        self.pa.canonical = 0
        r = results_match(&self.ps.cache, account.sublist, to, tn)
        if r == NULL or (r.npsubs == 0 and r.nqgroups == 0):
            return False
        return self.process_msg_results(r, msg, n)

    cdef char *request_header(
        self, Account account, Hop *hop, bint chained, char *msg, size_t *n, char *sizes
    ) noexcept nogil:
        """The message with Nats-Request-Info in its header, which `pa` then tells of, and `hop` of what it says; NULL
        when out of memory."""
        cdef PubArg *pa = &self.pa
        cdef size_t hdr = pa.hdr if pa.hdr > 2 else 0
        cdef ClientDetails *d = NULL
        cdef Slice name = (<Account> self.account).info_name
        cdef Slice server = (<Account> self.account).info_server
        cdef size_t room = hdr + n[0] + INFO_ROOM + name.n + server.n + account.info_name.n + 6 * hop.reply.n
        cdef char *out
        cdef char *p
        cdef int64_t rtt = loadi64(&self.rtt)
        if hop.details:
            d = <ClientDetails *> load_ptr_acquire(<void **> &self.details)
            if d != NULL:
                room += d.head_n + d.mid_n + d.tail_n
        out = <char *> malloc(room)
        if out == NULL:
            return NULL
        p = put(begin_header_without(out, msg, hdr, INFO_HEADER, INFO_HEADER_N), INFO_HEADER, INFO_HEADER_N)
        p = put(p, b": ", 2)
        hop.info.p = p
        p = put(p, b"{", 1)
        if d != NULL:
            p = put(p, d.data, d.head_n)
        p = put(put(p, b'"acc":', 6), name.p, name.n)
        if chained:
            p = put(put(p, b',"svc":', 7), account.info_name.p, account.info_name.n)
        if d != NULL:
            p = put(p, d.data + d.head_n, d.mid_n)
        if rtt:
            p += snprintf(p, 32, b',"rtt":%lld', <long long> rtt)
        if hop.server:
            p = put(put(p, b',"server":', 10), server.p, server.n)
        if d != NULL:
            p = put(p, d.data + d.head_n + d.mid_n, d.tail_n)
        if hop.reply.n:
            p = put(p, b',"reply":', 9)
            p += put_json_string(p, hop.reply.p, hop.reply.n)
        p = put(p, b"}", 1)
        hop.info.n = p - hop.info.p
        p = put(p, b"\r\n\r\n", 4)
        pa.hdr = <int32_t> (p - out)
        p = put(p, msg + hdr, n[0] - 2 - hdr)
        p = put(p, b"\r\n", 2)
        pa.no_crlf = 0
        n[0] = p - out
        pa.size = <int32_t> (n[0] - 2)
        pa.hdb.p = sizes
        pa.hdb.n = snprintf(sizes, 12, b"%d", pa.hdr)
        pa.szb.p = sizes + 12
        pa.szb.n = snprintf(sizes + 12, 12, b"%d", pa.size)
        return out

    cdef char *trace_import(
        self, Account account, ServiceExport *se, Account exporter, const Slice *subject, const Slice *to,
        bint response, const char *msg, size_t *n, char *dest, char *sizes
    ) noexcept nogil:
        cdef MsgTrace *t = self.mt
        cdef bint arm = False
        cdef size_t dn
        trace_service_import(t, &exporter.info_name, subject, to)
        if response or not load8(&se.allow_trace):
            if t.only:
                return NULL
            self.mt = NULL
            return set_trace_dest(&self.pa, msg, n, NULL, sizes)
        # who serves the request can have traces of its own sent to where this one goes
        dn = exporter.expect_response(
            account, se, t.dest.p, t.dest.n, False, self.cid, False, NULL, 0, next_random(&self.ps.rng), self.ps.now,
            dest, &arm)
        if arm:
            self.expect(se)
        if dn == 0:
            return NULL
        t.dest.p = dest
        t.dest.n = dn
        return set_trace_dest(&self.pa, msg, n, &t.dest, sizes)

    cdef void end_trace_import(self, Account exporter, MsgTrace *t, const Slice *before) noexcept nogil:
        self.mt = t
        if t.dest.p != before.p:
            release_expected(exporter.take_response(t.dest.p, t.dest.n))
            t.dest = before[0]

    cdef bint process_msg_results(self, MatchResult *r, char *msg, size_t n) noexcept nogil:
        return False   # Client's


cdef inline char *put(char *p, const char *text, size_t n) noexcept nogil:
    memcpy(p, text, n)
    return p + n


cdef char *map_in(Account account, Slice *to, uint64_t *rng, char *few, size_t room) noexcept nogil:
    """Have the mappings of an account change `to`: in few, or in memory to be freed; to.p is NULL without memory."""
    cdef Mappings *mappings = account_mappings(account)
    cdef char *out = few
    cdef size_t n = 0
    if mappings == NULL:
        return NULL
    while True:
        if not select_mapped_subject(mappings, to.p, to.n, rng, out, room, &n):
            break
        if n <= room:
            to.p = out
            to.n = n
            break
        if out != few:
            free(out)
        room = n
        out = <char *> malloc(n)
        if out == NULL:
            to.p = NULL
            break
    return out


cdef void release_expected(Expected *e) noexcept nogil:
    if e != NULL:
        export_release(e.se)
        free(e)


cdef void close_shadow(Subscription *shadow) noexcept nogil:
    cdef StreamImport *im = <StreamImport *> import_sub(shadow).what
    store8(&shadow.closed, 1)
    (<Account> im.exporter).sublist.remove(shadow)
    qs_retire(import_sub(shadow))
    stream_import_release(im)


cdef void close_chain(Subscription *chain) noexcept nogil:
    cdef Subscription *shadow
    while chain != NULL:
        shadow = chain
        chain = chain.next
        close_shadow(shadow)


cdef inline uint64_t next_random(uint64_t *rng) noexcept nogil:
    rng[0] ^= rng[0] << 13
    rng[0] ^= rng[0] >> 7
    rng[0] ^= rng[0] << 17
    return rng[0]
