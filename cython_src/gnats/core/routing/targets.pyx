"""The links that one message goes to; see targets.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strlen

from gnats.core.accounts.account cimport Account, StreamImport, count_sent, import_sub, import_to
from gnats.core.accounts.guard cimport CHECK_DELIVERIES, delivery_denied
from gnats.core.accounts.imports cimport transformed
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.accounts.subscriptions cimport sub_account
from gnats.core.messages.encode cimport Frame, Frames, frame_address, frame_for, frames_begin, frames_end
from gnats.core.messages.message cimport SIZES_ROOM, Message
from gnats.core.messages.msgtrace cimport trace_hop, trace_next_hop, trace_stream_export
from gnats.core.messages.reserved cimport MAPPED_N, is_jetstream_ack, plain_reply
from gnats.core.net.connection cimport WRITE_ERROR, Connection
from gnats.core.protocol.remote_args cimport PASSED, PASSED_WITH_REPLY, WITH_REPLY, WITHOUT
from gnats.core.routing.delivery cimport (
    EGRESS_CLIENT_CLOSED,
    EGRESS_NO_SUPPORT,
    EGRESS_OK,
    EGRESS_ONLY_NO_SUPPORT,
    deliver_local,
)
from gnats.core.routing.gateway_reply cimport prefix_for
from gnats.core.routing.origins cimport gateway_rank
from gnats.core.routing.remote cimport deliver_remote
from gnats.core.routing.tracing cimport set_trace_dest, set_trace_hop
from gnats.core.runtime.kinds cimport GATEWAY, LEAF, ROUTER
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport SUB_SHADOW, Subscription, sub_queue
from gnats.includes.arrays cimport array_grow
from gnats.includes.atomics cimport addi64_seq, likely, load8, unlikely
from gnats.includes.text cimport put, put_text

cdef enum:
    PART_ROOM = 512      # bytes of a destination's part of the line that fit on the stack
    HOP_ROOM = 256       # bytes of a hop's text; more than a hundred servers on the way do not fit


cdef bint targets_add(Targets *t, const Message *m, Subscription *s) noexcept nogil:
    cdef Target *target
    cdef size_t i
    if s.flags == SUB_SHADOW and m.hop != NULL:
        return False   # a message from a service import is not exported again as a stream
    if load8(&s.closed) or not takes(<Subscriber> s.client, m, s):
        return False
    if t.n == 0:
        t.at = t.few
        t.cap = FEW_TARGETS
        t.groups = t.few_groups
        t.groups_cap = FEW_TARGETS
        t.ngroups = t.gateways = 0
    if s.queue_len:
        if t.ngroups == t.groups_cap and not more_room(
                <void **> &t.groups, t.few_groups, &t.groups_cap, sizeof(Subscription *)):
            (<Connection> m.origin).out_of_memory(WRITE_ERROR)
            return False
        t.groups[t.ngroups] = s
        t.ngroups += 1
    for i in range(t.n):
        if t.at[i].link == s.client:
            t.at[i].groups += s.queue_len != 0
            return True
    if t.n == t.cap and not more_room(<void **> &t.at, t.few, &t.cap, sizeof(Target)):
        t.ngroups -= s.queue_len != 0
        (<Connection> m.origin).out_of_memory(WRITE_ERROR)
        return False
    target = &t.at[t.n]
    t.n += 1
    target.link = s.client
    target.sub = s
    target.groups = s.queue_len != 0
    target.turn = 0
    if s.kind == GATEWAY:
        target.turn = gateway_rank(s) + 1
        t.gateways += 1
    return True


cdef inline bint takes(Subscriber link, const Message *m, const Subscription *s) noexcept nogil:
    if load8(&link.closing):
        return False
    return not load8(&link.guard.checks) & CHECK_DELIVERIES or not delivery_denied(&link.guard, m.ps, &m.subject, s)


cdef bint more_room(void **array, const void *few, size_t *cap, size_t size) noexcept nogil:
    """Grow an array that begins on the stack."""
    cdef void *grown = NULL
    if array[0] != few:
        return array_grow(array, cap, FEW_TARGETS, size)
    grown = malloc(2 * cap[0] * size)
    if grown == NULL:
        return False
    memcpy(grown, few, cap[0] * size)
    array[0] = grown
    cap[0] *= 2
    return True


cdef void sort_by_turn(Targets *t) noexcept nogil:
    """Put gateways behind the others; those that have the same turn stay in order."""
    cdef Target moved
    cdef size_t i, k
    for i in range(1, t.n):
        moved = t.at[i]
        k = i
        while k and t.at[k - 1].turn > moved.turn:
            t.at[k] = t.at[k - 1]
            k -= 1
        t.at[k] = moved


cdef uint64_t targets_send(Targets *t, const Message *m, Frames *frames) noexcept nogil:
    return send_to_all(t, m, frames, True)


cdef uint64_t targets_forward(Targets *t, const Message *m, Frames *frames) noexcept nogil:
    return send_to_all(t, m, frames, False)


cdef inline uint64_t send_to_all(Targets *t, const Message *m, Frames *frames, bint counted) noexcept nogil:
    cdef uint64_t sent
    cdef Subscription *s = t.at[0].sub
    if unlikely(t.gateways != 0):
        sort_by_turn(t)
        t.prefix = prefix_for(m, <Account> sub_account(t.at[t.n - 1].sub))
    if likely(t.n == 1 and m.trace == NULL):
        addi64_seq(&s.nm, 1)
        sent = send_to(<Subscriber> t.at[0].link, t, &t.at[0], m, frames)
        if likely(sent and counted):
            count_sent(<Account> counting(s), m.ps, s.kind, 1, m.n)
    else:
        sent = send_to_several(t, m, frames, counted)
    if t.groups != t.few_groups:
        free(t.groups)
    return sent


cdef uint64_t send_to_several(Targets *t, const Message *m, Frames *frames, bint counted) noexcept nogil:
    cdef uint64_t sent = 0, msgs = 0, size = 0   # msgs, size: sent to links of `kind`, and not counted yet
    cdef int kind = t.at[0].sub.kind
    cdef size_t n, i
    for i in range(t.n):
        addi64_seq(&t.at[i].sub.nm, 1)
        if t.at[i].sub.kind != kind:
            if counted and msgs:
                count_sent(<Account> counting(t.at[0].sub), m.ps, kind, msgs, size)
            sent += msgs
            msgs = size = 0
            kind = t.at[i].sub.kind
        n = m.n
        if unlikely(m.trace != NULL):
            if send_traced_to(<Subscriber> t.at[i].link, t, &t.at[i], m, &n):
                msgs += 1
                size += n
        elif send_to(<Subscriber> t.at[i].link, t, &t.at[i], m, frames):
            msgs += 1
            size += n
    if counted and msgs:
        count_sent(<Account> counting(t.at[0].sub), m.ps, kind, msgs, size)
    if t.at != t.few:
        free(t.at)
    return sent + msgs


cdef inline void *counting(const Subscription *s) noexcept nogil:
    """Return the account that counts what a link's subscription is sent: it is in that account's sublist."""
    return import_sub(s).what.exporter if unlikely(s.flags == SUB_SHADOW) else sub_account(s)


cdef bint send_traced_to(
    Subscriber link, const Targets *t, const Target *target, const Message *m, size_t *n
) noexcept nogil:
    """Send a message under a header that says which hop it makes, also to be traced there only, and note it.

    n[0] becomes the size of the header and payload that were sent.
    """
    cdef char[HOP_ROOM] text
    cdef char[SIZES_ROOM] sizes
    cdef Message own = m[0]
    cdef Frames frames
    cdef Slice hop = trace_next_hop(m.trace, text, sizeof(text))
    cdef int outcome = EGRESS_OK if link.traces else EGRESS_NO_SUPPORT
    cdef char *changed
    cdef bint sent = False
    if target.sub.flags == SUB_SHADOW and not import_sub(target.sub).what.allow_trace:
        trace_stream_export(m.trace, &(<Account> import_sub(target.sub).what.owner).info_name, &m.subject)
        return m.trace.only or send_untraced_to(link, t, target, m, n)
    if m.trace.only and not link.traces:
        trace_hop(m.trace, link.kind, link.cid, &hop, EGRESS_ONLY_NO_SUPPORT)
        return False
    changed = set_trace_hop(&own, &hop, sizes)
    if changed == NULL:
        (<Connection> m.origin).out_of_memory(WRITE_ERROR)
        return False
    n[0] = own.n
    frames_begin(&frames)
    sent = send_to(link, t, target, &own, &frames)
    frames_end(&frames)
    free(changed)
    trace_hop(m.trace, link.kind, link.cid, &hop, outcome if sent else EGRESS_CLIENT_CLOSED)
    return sent


cdef bint send_untraced_to(
    Subscriber link, const Targets *t, const Target *target, const Message *m, size_t *n
) noexcept nogil:
    """Send a message with a trace that does not go on: what imports the stream allows none."""
    cdef char[SIZES_ROOM] sizes
    cdef Message own = m[0]
    cdef Frames frames
    cdef char *changed = set_trace_dest(&own, NULL, sizes)
    cdef bint sent
    if changed == NULL:
        (<Connection> m.origin).out_of_memory(WRITE_ERROR)
        return False
    own.trace = NULL
    n[0] = own.n
    frames_begin(&frames)
    sent = send_to(link, t, target, &own, &frames)
    frames_end(&frames)
    free(changed)
    return sent


cdef bint send_to(
    Subscriber link, const Targets *t, const Target *target, const Message *m, Frames *frames
) noexcept nogil:
    cdef char[PART_ROOM] few
    cdef char[IMPORTED_ROOM] few_subject
    cdef char *part = few
    cdef size_t room
    cdef Slice subject = m.subject
    cdef Frame *frame = frame_for(m, frames, load8(&link.form))
    cdef bint delivered = False
    if unlikely(target.sub.flags == SUB_SHADOW):
        subject = imported_subject(m, import_sub(target.sub).what, few_subject)
    room = part_room(t, target, m, &subject)
    if room > sizeof(few):
        part = <char *> malloc(room)
    if frame == NULL or part == NULL or subject.p == NULL:
        (<Connection> m.origin).out_of_memory(WRITE_ERROR)
    else:
        frame_address(frame, part, put_part(part, t, target, m, &subject, frame.hdr != 0) - part)
        if link.ps == m.ps:
            link.session.announce(link, True)
            delivered = deliver_local(link, m, frame) == EGRESS_OK
        else:
            delivered = deliver_remote(link, m, NULL, frame) == EGRESS_OK
    if part != few:
        free(part)
    if unlikely(target.sub.flags == SUB_SHADOW) and import_sub(target.sub).what.tr != NULL and (
            subject.p != few_subject):
        free(subject.p)
    return delivered


cdef size_t part_room(const Targets *t, const Target *target, const Message *m, const Slice *subject) noexcept nogil:
    cdef size_t i, n = strlen(b"LMSG ") + subject.n + strlen(b" ") + m.reply.n + strlen(b" + @ 0") + m.shown.n
    if target.sub.kind == GATEWAY:
        n += MAPPED_N
    if target.sub.kind != LEAF:
        n += (<Account> sub_account(target.sub)).name.n + (<Subscriber> m.origin).cluster.n + strlen(b"  ")
    if target.groups:
        for i in range(t.ngroups):
            if t.groups[i].client == target.link:
                n += strlen(b" ") + t.groups[i].queue_len
    return n


cdef char *put_part(
    char *p, const Targets *t, const Target *target, const Message *m, const Slice *subject, bint header
) noexcept nogil:
    """Write "verb [origin] [account] subject [reply | + reply groups... | '|' groups...] [0]" and return its end.

    What came over a route goes to another one for its groups alone, and what came for groups alone goes on so.
    """
    cdef bint replies = m.reply.p != NULL and m.reply.n != 0
    cdef bint on_behalf = False
    cdef Slice name, plain
    cdef char indicator
    cdef size_t i
    if target.sub.kind != LEAF:
        on_behalf = names_origin(<Subscriber> target.link, m)
        p = put_text(p, b"LMSG " if on_behalf else (b"HMSG " if header else b"RMSG "))
        if on_behalf:
            name = (<Subscriber> m.origin).cluster
            p = put_text(put(p, name.p, name.n), b" ")
        if not (<Subscriber> target.link).one_account:
            name = (<Account> sub_account(target.sub)).name
            p = put_text(put(p, name.p, name.n), b" ")
    else:
        p = put_text(p, b"HMSG " if header else b"LMSG ")
    p = put(p, subject.p, subject.n)
    if target.groups:
        indicator = WITH_REPLY if replies else WITHOUT
        if m.remote != NULL and (<Subscriber> target.link).passes and (
                m.remote.passed or ((<Subscriber> m.origin).kind == ROUTER and target.sub.kind == ROUTER)):
            indicator = PASSED_WITH_REPLY if replies else PASSED
        p = put(put_text(p, b" "), &indicator, 1)
    if replies:
        p = put_text(p, b" ")
        if target.sub.kind == GATEWAY and t.prefix != NULL:
            p = put(p, t.prefix, MAPPED_N)
        p = put(p, m.reply.p, m.reply.n)
        if m.shown.p != NULL:
            plain = plain_reply(&m.reply)
            if is_jetstream_ack(&plain):   # what its subscribers see: see show_deliver_subject
                p = put(put_text(p, b"@"), m.shown.p, m.shown.n)
    if target.groups:
        for i in range(t.ngroups):
            if t.groups[i].client == target.link:
                p = put(put_text(p, b" "), sub_queue(t.groups[i]), t.groups[i].queue_len)
    # A message on behalf of a leaf node always has a header size.
    return put_text(p, b" 0") if on_behalf and not header else p


cdef inline bint names_origin(Subscriber route, const Message *m) noexcept nogil:
    """Return whether a route is told which cluster of leaf nodes a message comes from."""
    return (<Subscriber> m.origin).kind == LEAF and (
        <Subscriber> m.origin).cluster.n != 0 and m.hop == NULL and route.origins != 0


cdef Slice imported_subject(const Message *m, const StreamImport *im, char *few) noexcept nogil:
    cdef Slice subject = m.subject
    if im.tr != NULL:
        subject.p = transformed(im.tr, &m.subject, &m.ps.rng, few, IMPORTED_ROOM, &subject.n)
    elif not im.use_published:
        subject.p = <char *> import_to(im)
        subject.n = im.to_n
    return subject
