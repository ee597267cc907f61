"""Check, map, trace and route what a connection publishes; see publishing.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, strlen

from gnats.core.accounts.account cimport Account, account_mappings
from gnats.core.accounts.denials cimport refuse_publish, refuse_reply
from gnats.core.accounts.guard cimport may_publish
from gnats.core.accounts.mappings cimport Mappings, select_mapped_subject
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.encode cimport (
    Frame,
    Frames,
    frame_address,
    frame_for,
    frame_size,
    frames_begin,
    frames_end,
    put_frame,
)
from gnats.core.messages.message cimport SIZES_ROOM, Message, message_set_data
from gnats.core.messages.msgtrace cimport REFUSED_REPLY, REFUSED_SIZE, REFUSED_SUBJECT, trace_mapping, trace_refused
from gnats.core.messages.reserved cimport (
    is_gateway_reply,
    is_jetstream_ack,
    is_mapped_reply,
    is_raft_subject,
    is_service_reply,
)
from gnats.core.net.connection cimport READ_ERROR, WRITE_ERROR
from gnats.core.net.connectionbase cimport trace_verb_with
from gnats.core.net.log_records cimport TRACE_IN, TRACE_IN_PAYLOAD
from gnats.core.net.pollstate cimport PollState
from gnats.core.routing.gateway_return cimport answer_request, is_back, send_answer
from gnats.core.routing.remote_latency cimport is_tracked_reply, note_answer
from gnats.core.routing.route cimport ROUTE_NO_MEMORY, ROUTE_NOBODY, RouteOutcome, process_msg_results, route
from gnats.core.routing.tracing cimport (
    TRACE_ON,
    TRACE_SKIP,
    init_msg_trace,
    may_be_traced,
    send_msg_trace,
    set_trace_dest,
)
from gnats.core.runtime.slice cimport Slice
from gnats.core.runtime.turn cimport turn_spend
from gnats.core.subjects.match_cache cimport results_match
from gnats.core.subjects.sublist cimport MatchResult, Subscription, sub_sid
from gnats.includes.atomics cimport likely, load8, load64, load_ptr_acquire, unlikely
from gnats.includes.text cimport put, put_text

cdef enum:
    STATUS_ROOM = 256      # bytes of a status that fit on the stack

cdef const char *NO_RESPONDERS = b"NATS/1.0 503\r\nNats-Subject: "


cdef inline bint is_reserved_reply(const Slice *reply) noexcept nogil:
    # service imports, JetStream acknowledgements, gateway replies
    if reply.p[0] == c'_':
        return is_service_reply(reply.p, reply.n) or is_gateway_reply(reply)
    return reply.p[0] == c'$' and (is_jetstream_ack(reply) or is_gateway_reply(reply))


cdef inline RouteOutcome route_here(Subscriber c, const Message *m) noexcept nogil:
    cdef RouteOutcome outcome = route(m, (<Account> m.account).sublist)
    if unlikely(outcome == ROUTE_NO_MEMORY):
        c.out_of_memory(READ_ERROR)
    elif outcome == ROUTE_NOBODY and m.reply.p != NULL and c.no_responders:
        send_no_responders(c, m)
    return outcome


cdef inline void check_and_route(Subscriber c, Message *m, Mappings *mappings) noexcept nogil:
    """Map, check and route a message. `mappings` (NULL: none) may change it."""
    c.read_msgs += 1
    c.read_bytes += m.n
    if unlikely(mappings != NULL):
        map_subject(c, m, mappings)   # checks and subscribers see the mapped subject only
    if c.trace:
        c.trace_msg(TRACE_IN_PAYLOAD, m.data, m.n + 2, m.hdr)
    if unlikely(m.subject.n and (m.subject.p[0] == c'_' or m.subject.p[0] == c'$')):
        if is_gateway_reply(&m.subject) or (
            is_raft_subject(&m.subject) and not load8(&(<Account> m.account)._is_system)
        ):
            refuse_msg(c, m, REFUSED_SUBJECT)
            return
    if unlikely(c.guard.permissions != NULL) and not may_publish(&c.guard, c.ps, &m.subject):
        refuse_msg(c, m, REFUSED_SUBJECT)
        return
    if m.reply.p != NULL and is_reserved_reply(&m.reply):
        refuse_msg(c, m, REFUSED_REPLY)
        return
    if unlikely(c.verbose):
        c.session.send_ok(c)
    if unlikely(load64(&c.tracked) != 0) and is_tracked_reply(&m.subject):
        note_answer(c, &m.subject)
    if unlikely(load_ptr_acquire(<void **> &c.mapped_replies) != NULL) and answer_request(c, m):
        return
    route_here(c, m)


cdef void process_inbound_client_msg(Subscriber c, Message *m) noexcept nogil:
    cdef Mappings *mappings
    cdef Message own
    if unlikely(m.hdr != 0) and may_be_traced(c, m):
        own = m[0]   # a copy that may be changed
        process_traced_msg(c, &own)
        return
    mappings = account_mappings(<Account> m.account)
    if unlikely(mappings != NULL):
        own = m[0]
        m = &own
    check_and_route(c, m, mappings)


cdef RouteOutcome route_msg(Subscriber c, const Message *m) noexcept nogil:
    cdef Message own
    if unlikely(is_mapped_reply(&m.subject)):
        own = m[0]
        if not is_back(c.server, &own.subject):
            return send_answer(m, <Account> m.account)
        own.line = NULL
        return route_here(c, &own)
    return route_here(c, m)


cdef void refuse_msg(Subscriber c, const Message *m, int what) noexcept nogil:
    if m.trace != NULL:
        trace_refused(m.trace, what, &m.subject if what == REFUSED_SUBJECT else &m.reply)
    if what == REFUSED_SUBJECT:
        refuse_publish(c, &m.subject)
    else:
        refuse_reply(c, &m.reply)


cdef bint map_published(Subscriber c, Message *m) noexcept nogil:
    cdef const char *before = m.subject.p
    cdef Mappings *mappings = account_mappings(<Account> m.account)   # a reload may have just taken them away
    if mappings != NULL:
        map_subject(c, m, mappings)
    return m.subject.p != before


cdef void map_subject(Subscriber c, Message *m, Mappings *mappings) noexcept nogil:
    """Replace the subject by the one that it is mapped to, if any."""
    cdef PollState *ps = c.ps
    cdef size_t n = 0
    cdef char *grown
    while True:
        if not select_mapped_subject(
                mappings, m.subject.p, m.subject.n, &ps.rng, ps.mapped, ps.mapped_len, &n):
            return
        if n < ps.mapped_len:
            break
        grown = <char *> realloc(ps.mapped, n + 256)
        if grown == NULL:
            c.out_of_memory(READ_ERROR)
            m.subject.n = 0
            return
        ps.mapped = grown
        ps.mapped_len = n + 256
    if unlikely(c.trace):
        trace_in_mapping(c, &m.subject, ps.mapped, n)
    m.subject.p = ps.mapped
    m.subject.n = n
    m.line = NULL
    if unlikely(m.trace != NULL):
        trace_mapping(m.trace, &m.subject)


cdef void trace_in_mapping(Subscriber c, const Slice *subject, const char *to, size_t n) noexcept nogil:
    cdef size_t size = subject.n + strlen(b" -> ") + n
    cdef char *line = <char *> malloc(size)
    if line == NULL:
        return
    put(put_text(put(line, subject.p, subject.n), b" -> "), to, n)
    trace_verb_with(c, TRACE_IN, b"MAPPING", line, size)
    free(line)


cdef void process_traced_msg(Subscriber c, Message *m) noexcept nogil:
    cdef char[SIZES_ROOM] sizes
    cdef char *changed = NULL
    cdef bint disable = False
    if init_msg_trace(c, m, &disable) == TRACE_SKIP:
        return
    if disable:
        changed = set_trace_dest(m, NULL, sizes)
    check_and_route(c, m, account_mappings(<Account> m.account))
    free(changed)
    if m.trace != NULL:
        send_msg_trace(c, m)


cdef void trace_too_large(Subscriber c, Message *m) noexcept nogil:
    cdef bint disable = False
    if may_be_traced(c, m) and init_msg_trace(c, m, &disable) == TRACE_ON:
        trace_refused(m.trace, REFUSED_SIZE, &m.subject)
        send_msg_trace(c, m)


cdef void send_no_responders(Subscriber c, const Message *m) noexcept nogil:
    """Send a 503 status to a requester, if it is itself subscribed to the reply (sendNoResponders)."""
    cdef char[STATUS_ROOM] few
    cdef size_t n = strlen(NO_RESPONDERS) + m.subject.n + strlen(b"\r\n\r\n")
    cdef char *status = few
    cdef Subscription *s = NULL
    cdef MatchResult *r = (<Account> m.account).sublist.match(m.reply.p, m.reply.n)
    cdef uint32_t i
    if r == NULL:
        c.out_of_memory(READ_ERROR)
        return
    turn_spend(&c.ps.turn, r.visited)
    for i in range(r.npsubs):
        if r.psubs[i].client == <void *> c and not load8(&r.psubs[i].closed):
            s = r.psubs[i]
            break
    free(r)
    if s == NULL:
        return
    if n > sizeof(few):
        status = <char *> malloc(n)
        if status == NULL:
            c.out_of_memory(READ_ERROR)
            return
    put_text(put(put_text(status, NO_RESPONDERS), m.subject.p, m.subject.n), b"\r\n\r\n")
    send_status(c, s, &m.reply, status, n)
    if status != few:
        free(status)


cdef void send_status(Subscriber c, const Subscription *s, const Slice *subject, char *status, size_t n) noexcept nogil:
    """Send a message that is a header only to one subscription, as an answer: no statistics count it."""
    cdef char[SIZES_ROOM] sizes
    cdef Message m
    cdef Frames frames
    cdef Frame *frame
    cdef char *line = NULL
    begin_message(c, &m)
    m.subject = subject[0]
    message_set_data(&m, status, n, n, sizes)
    frames_begin(&frames)
    frame = frame_for(&m, &frames, c.form)
    if frame != NULL:
        frame_address(frame, sub_sid(s), s.sid_len)
        line = <char *> malloc(frame_size(frame))
    if line == NULL:
        c.out_of_memory(READ_ERROR)
    else:
        put_frame(line, frame)
        c.queue_outbound(line, frame_size(frame))
        free(line)
    frames_end(&frames)


cdef RouteOutcome send_internal_msg(
    Subscriber c, Account account, const char *subject, size_t sn, const char *shown, size_t shown_n,
    const char *reply, size_t rn, const char *hdr, size_t hn, const char *msg, size_t n
) noexcept nogil:
    cdef char[SIZES_ROOM] sizes
    cdef char *joined = NULL
    cdef Message m
    cdef RouteOutcome outcome
    cdef MatchResult *r = NULL
    cdef bint answers
    m.subject.p = <char *> subject
    m.subject.n = sn
    answers = is_mapped_reply(&m.subject) and not is_back(c.server, &m.subject)
    if likely(not answers):
        r = results_match(&c.ps.cache, account.sublist, m.subject.p, m.subject.n)
        if r == NULL:
            c.out_of_memory(WRITE_ERROR)
            return ROUTE_NO_MEMORY
        if r.npsubs == 0 and r.nqgroups == 0:
            return ROUTE_NOBODY
    if hn and n and hdr + hn != msg:
        joined = <char *> malloc(hn + n)
        if joined == NULL:
            c.out_of_memory(WRITE_ERROR)
            return ROUTE_NO_MEMORY
        memcpy(joined, hdr, hn)
        memcpy(joined + hn, msg, n)
    begin_message(c, &m)
    m.account = <void *> account
    m.shown.p = <char *> shown
    m.shown.n = shown_n
    if rn:
        m.reply.p = <char *> reply
        m.reply.n = rn
    message_set_data(&m, joined if joined != NULL else <char *> (hdr if hn else msg), hn, hn + n, sizes)
    outcome = send_answer(&m, account) if unlikely(answers) else process_msg_results(&m, r)
    free(joined)
    return outcome
