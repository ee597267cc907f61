"""Requests and responses through imported services; see serviceimports.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, strlen

from gnats.core.accounts.account cimport REPLY_ROOM, Account, ServiceImport, account_mappings
from gnats.core.accounts.imports cimport report_first_half, report_latency, transformed
from gnats.core.accounts.mappings cimport Mappings, select_mapped_subject
from gnats.core.accounts.subscriber cimport ClientDetails, Subscriber
from gnats.core.messages.headers cimport begin_header_without
from gnats.core.messages.message cimport SIZES_ROOM, Hop, Message, RemoteArgs, message_set_data
from gnats.core.messages.msgtrace cimport trace_service_import
from gnats.core.messages.reserved cimport has_prefix, is_jetstream_ack, is_mapped_reply
from gnats.core.messages.responses cimport (
    SINGLETON,
    Expected,
    ServiceExport,
    expected_header,
    expected_other,
    expected_release,
    replymap_find,
)
from gnats.core.messages.sampling cimport sampled_by_header
from gnats.core.net.connection cimport WRITE_ERROR
from gnats.core.net.pollstate cimport PollState, poller_random64
from gnats.core.routing.gateway_return cimport is_back, send_answer
from gnats.core.routing.route cimport ROUTE_DELIVERED, ROUTE_NO_MEMORY, RouteOutcome, route
from gnats.core.routing.tracing cimport set_trace_dest
from gnats.core.runtime.clock cimport monotonic_ns
from gnats.core.runtime.inbox cimport EV_RESPONSES
from gnats.core.runtime.kinds cimport GATEWAY, LEAF, ROUTER, SYSTEM
from gnats.core.runtime.quoting cimport put_json_string
from gnats.core.runtime.slice cimport Slice
from gnats.core.runtime.state cimport ServerDetails
from gnats.core.subjects.sublist cimport Subscription
from gnats.includes.atomics cimport load8, load_ptr_acquire, loadi64, unlikely
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport is_text, put, put_text

cdef enum:
    ROOM = 512         # bytes of a subject that fit on the stack
    MAX_HOPS = 128     # service imports that one message may go through: each takes space on the stack
    INFO_ROOM = 128    # bytes of the header beside the names in it

cdef const char *INFO_HEADER = b"Nats-Request-Info"


# The reply subject that is made for a message on its way to another account.
cdef struct NewReply:
    char text[REPLY_ROOM]
    bint expected      # the account has an entry for it
    bint arm           # the control plane must watch the expiry of the export's responses: post EV_RESPONSES


cdef inline bint replace_reply(
    Message *m, NewReply *made, Account account, Account requester, ServiceExport *se, bint share, bint tracked,
    size_t header_n, int64_t now
) noexcept nogil:
    """Give a message to `account` a reply subject there; one that is a JetStream acknowledgement stays. False: there is
    no memory for it, or the export is closed, and the message has no reply then.

    `header_n`: as many bytes of its header have asked for the measurement.
    """
    made.expected = made.arm = False
    if m.reply.n and is_jetstream_ack(&m.reply):
        return True
    if m.reply.n:
        m.reply.n = account.expect_response(
            take_response, requester, se, m.reply.p, m.reply.n, share, (<Subscriber> m.origin).cid, tracked, m.data,
            header_n, poller_random64(m.ps), now, made.text, &made.arm)
        made.expected = m.reply.n > 0
        m.reply.p = made.text if made.expected else NULL
        return made.expected
    m.reply.p = NULL
    return True


cdef bint route_here(const Message *m, Account account) noexcept nogil:
    """Route a message in another account. Return whether a subscriber received it."""
    cdef RouteOutcome outcome
    cdef Message own
    if unlikely(is_mapped_reply(&m.subject)):   # a response to a request that came through a leaf node
        own = m[0]
        if is_back((<Subscriber> m.origin).server, &own.subject):
            outcome = route(&own, account.sublist)
        else:
            outcome = send_answer(m, account)
    else:
        outcome = route(m, account.sublist)
    if unlikely(outcome == ROUTE_NO_MEMORY):
        (<Subscriber> m.origin).out_of_memory(WRITE_ERROR)
    return outcome == ROUTE_DELIVERED


# -- requests ----------------------------------------------------------------------------------------------------------

cdef bint take_request(void *ctx, const Message *m, const Subscription *s) noexcept nogil:
    return process_service_import(<ServiceImport *> ctx, m)


cdef bint process_service_import(ServiceImport *si, const Message *m) noexcept nogil:
    """Route a request in the account that serves it. False: no subscriber received it there."""
    cdef char[ROOM] few, few_mapped
    cdef char[REPLY_ROOM] dest
    cdef uint32_t hops = 0
    cdef char[SIZES_ROOM] sizes, traced_sizes
    cdef NewReply reply
    cdef Message request = m[0]
    cdef RemoteArgs from_leaf
    cdef Hop hop
    cdef char *made = NULL
    cdef char *mapped = NULL
    cdef char *named = NULL
    cdef char *noted = NULL
    cdef Expected *e
    cdef bint delivered = False, tracked = False, by_header = False, ready = True, answerable
    if load8(&si.invalid) or (
            is_jetstream_api(si) and (served_here(&m.subject) or through_response(m.hop))):
        return False
    hop.se = si.se
    hop.request = 1
    hop.share = load8(&si.share)
    hop.account = si.account
    hop.info.p = NULL
    hop.info.n = 0
    choose_details(si, m, &hop)
    if not enter(m.hop, &hop):
        return False
    request.hop = &hop
    request.line = NULL
    if unlikely(m.remote != NULL):   # a leaf node names queue groups of its own account only
        from_leaf = m.remote[0]
        from_leaf.nqueues = 0
        from_leaf.all_groups = 1
        request.remote = &from_leaf
    if si.tr != NULL:
        made = transformed(si.tr, &m.subject, &m.ps.rng, few, ROOM, &request.subject.n)
        request.subject.p = made
    elif not si.use_published:
        request.subject.p = si.to
        request.subject.n = si.to_n
    if request.subject.p != NULL:
        mapped = map_in(<Account> si.exporter, &request.subject, m.ps, few_mapped, ROOM)
    if unlikely(load8(&si.se.sampling) or load8(&si.se.by_header)):
        tracked = should_sample(si.se, m, &by_header)
        if tracked and not m.reply.n:
            report_latency(
                <Subscriber> m.origin, si.se, 400, (<Subscriber> m.origin).cid, 0, 0, hop.share, m.data,
                m.hdr if by_header else 0)
    answerable = replace_reply(
        &request, &reply, <Account> si.exporter, <Account> si.account, si.se, hop.share,
        tracked and si.se.response_type == SINGLETON, m.hdr if by_header else 0,
        monotonic_ns() if tracked else m.ps.now)
    if reply.arm:
        expect(m, si.se)
    if names_requester((<Subscriber> m.origin).kind):
        named = request_header(<Subscriber> m.origin, <Account> si.account, &hop, m.hop, &request, sizes)
        ready = named != NULL
    if unlikely(m.trace != NULL):
        hops = m.trace.hops
        if ready and request.subject.p != NULL:
            noted = trace_request(si, m, &request, dest, traced_sizes)
            ready = noted != NULL
    if ready and answerable and request.subject.p != NULL:
        delivered = route_here(&request, <Account> si.exporter)
    elif not load8(&si.se.closed) and (m.trace == NULL or not m.trace.only):
        # A closed export expects no response, and a request may end here that is traced only. Else memory was short.
        (<Subscriber> m.origin).out_of_memory(WRITE_ERROR)
    if unlikely(m.trace != NULL):
        # Other servers that were sent the request have yet to publish their traces there, until that expires.
        if request.trace_dest.p != m.trace_dest.p and m.trace.hops == hops:
            expected_release((<Account> si.exporter).take_response(request.trace_dest.p, request.trace_dest.n))
        if m.trace.only and reply.expected:
            expected_release((<Account> si.exporter).take_response(reply.text, request.reply.n))
            reply.expected = False
    if reply.expected and not delivered:
        e = (<Account> si.exporter).take_response(reply.text, request.reply.n)
        if e != NULL and e.tracked:
            report_latency(
                <Subscriber> m.origin, e.se, 503, e.requester, 0, 0, e.share, expected_header(e), e.header_n)
        expected_release(e)
    free(named)    # hop.info pointed into it
    free(noted)
    if made != few:
        free(made)
    if mapped != few_mapped:
        free(mapped)
    return delivered


cdef bint is_jetstream_api(const ServiceImport *si) noexcept nogil:
    """Return whether this is the one import of the whole JetStream API."""
    return si.to_system and is_text(si.to, si.to_n, b"$JS.API.>")


cdef bint served_here(const Slice *subject) noexcept nogil:
    """Return whether streams and consumers answer this API request in the poller, subscribed in the account itself.

    Then the import leaves it alone. CONSUMER.RESET is not among them: the control half of a consumer subscribes to it
    in the account, and the API ignores the copy that comes through the import.
    """
    return has_prefix(subject, b"$JS.API.DIRECT.GET.") or has_prefix(subject, b"$JS.API.CONSUMER.MSG.NEXT.")


cdef bint through_response(const Hop *hop) noexcept nogil:
    """Return whether the message comes from a response.

    Its subject was chosen by a requester, as a reply. That requester may not be allowed to publish to the JetStream
    API, so the message must not get there.
    """
    while hop != NULL:
        if not hop.request:
            return True
        hop = hop.before
    return False


cdef void choose_details(const ServiceImport *si, const Message *m, Hop *hop) noexcept nogil:
    """Decide which facts about the requester the request's header has. The first import of a chain decides about the
    details; later ones can only add the server's name, for services that need it."""
    cdef const Hop *before = m.hop
    if before != NULL and before.request:
        hop.details = before.details
        hop.server = before.server or hop.share or si.to_system
        hop.reply = before.reply
        return
    hop.details = before.share if before != NULL else hop.share
    hop.server = hop.details or si.to_system
    hop.reply = m.reply
    if not has_suffix(&m.reply, b".$FI"):
        hop.reply.n = 0


cdef inline bint names_requester(uint8_t kind) noexcept nogil:
    """Return whether a request gets a header that says who asks. One of another server's has that server's; but what
    comes from another server and is a request only here is a response there, with any header."""
    return kind != SYSTEM


cdef bint enter(const Hop *before, Hop *hop) noexcept nogil:
    """Append `hop` to the imports of a message. False when the message has been through it, or through too many."""
    hop.before = before
    hop.depth = before.depth + 1 if before != NULL else 1
    if hop.depth > MAX_HOPS:
        return False
    while before != NULL:
        if before.se == hop.se:
            return False
        before = before.before
    return True


cdef char *map_in(Account account, Slice *to, PollState *ps, char *few, size_t room) noexcept nogil:
    """Apply an account's mappings to `to`. Return `few`, or memory to be freed; to.p is NULL without memory."""
    cdef Mappings *mappings = account_mappings(account)
    cdef char *out = few
    cdef size_t n = 0
    if mappings == NULL:
        return NULL
    while True:
        if not select_mapped_subject(mappings, to.p, to.n, &ps.rng, out, room, &n):
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


cdef bint should_sample(ServiceExport *se, const Message *m, bint *by_header) noexcept nogil:
    """Return whether to measure the request; by_header[0]: its header asks for it."""
    cdef uint8_t percent = load8(&se.sampling)
    by_header[0] = False
    if percent >= 100 or (percent and poller_random64(m.ps) // 7 % 100 <= percent):
        return True
    by_header[0] = m.hdr != 0 and sampled_by_header(m.data, m.hdr)
    return by_header[0]


cdef void expect(const Message *m, ServiceExport *se) noexcept nogil:
    """Have the control plane expire the responses that the service still waits for. Without memory, the next request
    tries again."""
    if not (<Subscriber> m.origin).inbox.post_data(
            EV_RESPONSES, NULL, &(<Subscriber> m.origin).source, <int64_t> se.id, 0, NULL, 0):
        pthread_mutex_lock(&(<Account> se.account).lock)
        se.armed = 0
        pthread_mutex_unlock(&(<Account> se.account).lock)


cdef char *request_header(
    Subscriber requester, Account importer, Hop *hop, const Hop *before, Message *request, char *sizes
) noexcept nogil:
    """Add Nats-Request-Info to the header of a request. Return the new header and payload, to be freed; hop.info is the
    header's value in there. NULL when out of memory."""
    cdef size_t hdr = request.hdr if request.hdr > 2 else 0
    cdef ClientDetails *d = NULL
    cdef Slice name = (<Account> request.account).info_name
    cdef const ServerDetails *server = NULL
    cdef size_t room = hdr + request.n + INFO_ROOM + name.n + importer.info_name.n + 6 * hop.reply.n
    cdef char *out
    cdef char *p
    cdef size_t hn
    cdef int64_t rtt = loadi64(&requester.rtt)
    if hop.details:
        d = <ClientDetails *> load_ptr_acquire(<void **> &requester.details)
        if d != NULL:
            room += d.head_n + d.mid_n + d.server_n + d.tail_n
    if hop.server:
        server = <const ServerDetails *> load_ptr_acquire(<void **> &requester.server.details)
        if server != NULL:
            room += server.n
    out = <char *> malloc(room)
    if out == NULL:
        return NULL
    p = begin_header_without(out, request.data, hdr, INFO_HEADER, strlen(INFO_HEADER))
    p = put_text(put_text(p, INFO_HEADER), b": ")
    hop.info.p = p
    p = put_text(p, b"{")
    if d != NULL:
        p = put(p, d.data, d.head_n)
    p = put(put_text(p, b'"acc":'), name.p, name.n)
    if before != NULL and before.request:
        p = put(put_text(p, b',"svc":'), importer.info_name.p, importer.info_name.n)
    if d != NULL:
        p = put(p, d.data + d.head_n, d.mid_n)
    if rtt:
        p += snprintf(p, 32, b',"rtt":%lld', <long long> rtt)
    if server != NULL and d != NULL and d.server_n:   # a leaf node's requester is there
        p = put(p, d.data + d.head_n + d.mid_n, d.server_n)
        p = put(p, server.data + server.server_n, server.n - server.server_n)
    elif server != NULL:
        p = put(p, server.data, server.n)
    if d != NULL:
        p = put(p, d.data + d.head_n + d.mid_n + d.server_n, d.tail_n)
    if hop.reply.n:
        p = put_text(p, b',"reply":')
        p += put_json_string(p, hop.reply.p, hop.reply.n)
    p = put_text(p, b"}")
    hop.info.n = p - hop.info.p
    p = put_text(p, b"\r\n\r\n")
    hn = p - out
    p = put(p, request.data + hdr, request.n - hdr)
    message_set_data(request, out, hn, p - out, sizes)
    return out


# -- responses ---------------------------------------------------------------------------------------------------------

cdef bint take_response(void *ctx, const Message *m, const Subscription *s) noexcept nogil:
    """Handler of the NativeSub for an account's responses; ctx is the Account."""
    process_service_import_response(<Account> ctx, m)
    return True   # a late response, too: nats-server sends its sender no error


cdef inline bint is_link_kind(uint8_t kind) noexcept nogil:
    return kind == ROUTER or kind == GATEWAY or kind == LEAF


cdef bint is_expected(Account account, const Slice *subject) noexcept nogil:
    cdef bint there
    pthread_mutex_lock(&account.lock)
    there = replymap_find(&account.responses, subject.p, subject.n) != NULL
    pthread_mutex_unlock(&account.lock)
    return there


cdef void process_service_import_response(Account account, const Message *m) noexcept nogil:
    """Route a response to its requester."""
    cdef char[SIZES_ROOM] sizes
    cdef NewReply reply
    cdef Message response = m[0]
    cdef Hop hop
    cdef bint delivered = False, ready = True
    cdef char *noted = NULL
    cdef Expected *e = account.find_response(m.subject.p, m.subject.n)
    response.remote = NULL   # it is this server's own: for any subscriber, also at other servers
    if e == NULL:
        if is_expected(account, &m.subject):
            (<Subscriber> m.origin).out_of_memory(WRITE_ERROR)   # one response of several could not be looked up
        return
    hop.se = e.se
    hop.share = e.share
    hop.request = hop.details = hop.server = 0
    hop.account = NULL
    hop.reply.n = hop.info.n = 0
    if unlikely(e.tracked):
        if is_link_kind((<Subscriber> m.origin).kind):
            report_first_half(
                <Subscriber> m.origin, e.se, e.requester, monotonic_ns() - e.ts, e.share, expected_header(e),
                e.header_n, &m.subject)
        else:
            report_latency(
                <Subscriber> m.origin, e.se, 200, e.requester, (<Subscriber> m.origin).cid, monotonic_ns() - e.ts,
                e.share, expected_header(e), e.header_n)
    if not enter(m.hop, &hop):
        expected_release(e)
        return
    # The responder may expect a response in turn.
    replace_reply(&response, &reply, <Account> e.account, account, e.se, e.share, False, 0, m.ps.now)
    response.hop = &hop
    response.line = NULL
    response.subject.p = <char *> expected_other(e)
    response.subject.n = e.other_n
    if unlikely(m.trace != NULL):
        trace_service_import(m.trace, &(<Account> e.account).info_name, &m.subject, &response.subject)
        noted = untrace(&response, sizes)
        ready = noted != NULL
    if ready:
        delivered = route_here(&response, <Account> e.account)
    free(noted)
    if reply.expected and not delivered:
        expected_release((<Account> e.account).take_response(reply.text, response.reply.n))
    if e.rt != SINGLETON:
        # An empty message ends a stream of responses.
        if delivered and m.n > 0:
            account.renew_response(m.subject.p, m.subject.n, m.ps.now)
        else:
            expected_release(account.take_response(m.subject.p, m.subject.n))
    expected_release(e)


# -- traces ------------------------------------------------------------------------------------------------------------

cdef char *trace_request(
    ServiceImport *si, const Message *m, Message *request, char *dest, char *sizes
) noexcept nogil:
    """Note the import in the trace, and end the trace or pass it on. Return the request's new header and payload, to be
    freed; NULL: do not route it."""
    cdef bint arm = False
    cdef size_t n
    trace_service_import(m.trace, &(<Account> si.exporter).info_name, &m.subject, &request.subject)
    if not load8(&si.se.allow_trace):
        return untrace(request, sizes)
    # The exporter's account gets a reply subject of its own for the trace's destination.
    n = (<Account> si.exporter).expect_response(
        take_response, <Account> si.account, si.se, m.trace_dest.p, m.trace_dest.n, False, (<Subscriber> m.origin).cid,
        False, NULL, 0, poller_random64(m.ps), m.ps.now, dest, &arm)
    if arm:
        expect(m, si.se)
    if n == 0:
        return NULL
    request.trace_dest.p = dest
    request.trace_dest.n = n
    return set_trace_dest(request, &request.trace_dest, sizes)


cdef char *untrace(Message *m, char *sizes) noexcept nogil:
    """End the trace of a message. Return its new header and payload, to be freed; NULL: it was to be traced only."""
    if m.trace.only:
        return NULL
    m.trace = NULL
    return set_trace_dest(m, NULL, sizes)


cdef inline bint has_suffix(const Slice *s, const char *text) noexcept nogil:
    return s.n >= strlen(text) and memcmp(s.p + s.n - strlen(text), text, strlen(text)) == 0
