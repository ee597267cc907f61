"""Route a message to its subscribers; see route.pxd."""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from gnats.core.accounts.account cimport Account, StreamImport, import_sub
from gnats.core.accounts.guard cimport CHECK_DELIVERIES, delivery_denied
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.accounts.subscriptions cimport unsubscribe
from gnats.core.messages.encode cimport (
    Frame,
    Frames,
    frame_address,
    frame_for,
    frames_begin,
    frames_begin_like,
    frames_end,
)
from gnats.core.messages.message cimport Message, NativeSub, RemoteArgs, native_sub
from gnats.core.messages.msgtrace cimport trace_egress, trace_stream_export
from gnats.core.messages.reserved cimport is_mapped_reply, plain_reply
from gnats.core.net.connection cimport WRITE_ERROR, Connection
from gnats.core.net.log_records cimport LOG_AUTO_UNSUBSCRIBE
from gnats.core.net.pollstate cimport hand_over_first, poller_random
from gnats.core.routing.charges cimport charged_account
from gnats.core.routing.delivery cimport (
    EGRESS_AUTO_UNSUBSCRIBED,
    EGRESS_CLIENT_CLOSED,
    EGRESS_NO_ECHO,
    EGRESS_OK,
    EGRESS_SUB_CLOSED,
    EGRESS_SUB_DENY,
    Egress,
    deliver_local,
    note_shown,
)
from gnats.core.routing.gateway_reply cimport remember_reply
from gnats.core.routing.origins cimport (
    gateway_rank,
    is_link,
    may_go_over,
    message_origin,
    routed_origin,
    same_cluster,
)
from gnats.core.routing.remote cimport deliver_remote
from gnats.core.routing.remote_latency cimport is_tracked_reply, note_request
from gnats.core.routing.targets cimport (
    IMPORTED_ROOM,
    Targets,
    imported_subject,
    targets_add,
    targets_begin,
    targets_send,
)
from gnats.core.runtime.inbox cimport (
    ACCOUNT_PART,
    EV_MSG,
    HEADER_PART,
    PAYLOAD_PART,
    PRODUCER_CLIENT,
    PRODUCER_CLUSTER,
    PRODUCER_LEAF,
    REPLY_PART,
    REQUESTER_PART,
    SUBJECT_PART,
    Event,
)
from gnats.core.runtime.kinds cimport CLIENT, GATEWAY, JETSTREAM, LEAF, ROUTER
from gnats.core.runtime.slice cimport Slice
from gnats.core.runtime.turn cimport turn_spend
from gnats.core.subjects.sublist cimport (
    SUB_NATIVE,
    SUB_SERVICE,
    SUB_SHADOW,
    MatchResult,
    QueueGroup,
    Subscription,
    sub_queue,
    sub_sid,
    sub_subject,
)
from gnats.core.subjects.subtable cimport subtable_find
from gnats.core.subjects.trie cimport sub_weight
from gnats.includes.atomics cimport addi64_seq, bump64, likely, load8, loadi64, storei64, unlikely
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport put

# Which function calls which, for one subscription of a match result:
#   process_msg_results   deliver_msg; then targets_send for links to other servers (core.routing.targets); for native
#                         subscriptions and their shadows, last, call_native and deliver_shadow
#   deliver_msg           deliver_shadow for a stream import, deliver_traced for a traced message, else deliver
#   deliver_shadow        deliver_import, and that deliver_traced or deliver
#   deliver_traced        deliver
#   deliver               deliver_local for a connection of this poller (core.routing.delivery), deliver_remote for one
#                         of another (core.routing.remote), deliver_internal for the server itself
#   deliver_internal      post_msg for the control plane, deliver_native_shadow, and that call_native, for a stream

cdef enum:
    FEW_LAST = 16      # native subscribers that fit on the stack
    NAMES_COMPARED = 8   # names of queue groups for a unit of a turn
    NATIVE_COST = 16   # units of a turn that one of them takes
    FEW_BYTES = 256    # bytes of a result with subscribers so few that their cost does not count
    MOST_MAPPED = 1024   # bytes of a mapped reply that a client's answer is looked up by: each client keeps many


# Native subscribers of a message, and shadows of such: they come last.
cdef struct LastOnes:
    uint32_t n
    Subscription **subs
    Subscription *few[FEW_LAST]


cdef bint add_last(LastOnes *last, Subscription *s, const MatchResult *r) noexcept nogil:
    if last.n == FEW_LAST and last.subs == last.few:
        last.subs = <Subscription **> malloc((r.npsubs + r.nqgroups) * sizeof(Subscription *))
        if last.subs == NULL:
            last.subs = last.few
            return False
        memcpy(last.subs, last.few, sizeof(last.few))
    last.subs[last.n] = s
    last.n += 1
    return True


cdef inline bint is_native_shadow(const Subscription *s) noexcept nogil:
    """Return whether this is the shadow of a native subscription. Its function may publish in place: it comes last."""
    return s.flags == SUB_SHADOW and s.kind == JETSTREAM


cdef RouteOutcome process_msg_results(const Message *m, const MatchResult *r) noexcept nogil:
    cdef Frames frames
    cdef Targets targets
    cdef uint32_t i, k, npsubs = r.npsubs
    cdef uint64_t delivered = 0   # to clients and links; deliveries to the server itself do not count
    cdef bint received = False
    cdef Subscription *s
    cdef LastOnes last
    last.n = 0
    last.subs = last.few
    frames_begin(&frames)
    targets_begin(&targets)
    if unlikely(m.remote != NULL) and m.remote.passed:
        npsubs = 0   # they have got it from the server that has published it
    for i in range(npsubs):
        s = r.psubs[i]
        if unlikely(s.flags != 0) and (s.flags != SUB_SHADOW or s.kind != CLIENT):
            if is_link(s):
                if may_go_over(m, s):
                    targets_add(&targets, m, s)
            elif s.flags == SUB_SHADOW and not is_native_shadow(s):
                if deliver_shadow(m, s, &frames):
                    received = True
                    delivered += not s.internal
            elif not add_last(&last, s, r):
                (<Connection> m.origin).out_of_memory(WRITE_ERROR)   # the others are served all the same
            continue
        if deliver_msg(m, s, &frames):
            received = True
            delivered += not s.internal
    for k in range(r.nqgroups):
        if unlikely(m.remote != NULL) and not names_group(m.remote, r.qgroups[k].subs[0]):
            continue
        if unlikely(r.qgroups[k].local != r.qgroups[k].n):
            s = deliver_to_linked_group(m, &r.qgroups[k], &frames, &last, &targets, r)
        else:
            s = deliver_to_group(m, &r.qgroups[k], r.qgroups[k].n, &frames, &last, r)
        if s != NULL:
            received = True
            delivered += not s.internal and not is_link(s)
    if unlikely(targets.n != 0):
        # Before those that may publish in place: what they cause comes after what caused it.
        received = True
        delivered += targets_send(&targets, m, &frames)
    if delivered:
        bump64(&m.ps.out_msgs, delivered)
        bump64(&m.ps.out_bytes, delivered * m.n)
    if unlikely(r.nbytes > FEW_BYTES):
        turn_spend(&m.ps.turn, r.nbytes // sizeof(Subscription *))
    if unlikely(m.remote != NULL) and m.remote.nqueues:
        turn_spend(&m.ps.turn, <uint64_t> m.remote.nqueues * r.nqgroups // NAMES_COMPARED)
    if unlikely(last.n != 0):
        turn_spend(&m.ps.turn, last.n * NATIVE_COST)
        # Last, since these functions may publish: that may replace the match result and the poller's scratch memory.
        for i in range(last.n):
            s = last.subs[i]
            if load8(&s.closed):
                continue
            if s.flags == SUB_SHADOW:
                received |= deliver_shadow(m, s, &frames)
                continue
            if s.flags == SUB_SERVICE and m.remote != NULL and (<Subscriber> m.origin).kind != LEAF:
                continue   # the requester's server has imported the service for it
            addi64_seq(&s.nm, 1)
            received |= call_native(m, s)
        if last.subs != last.few:
            free(last.subs)
    frames_end(&frames)
    return ROUTE_DELIVERED if received else ROUTE_NOBODY


cdef inline bint names_group(const RemoteArgs *remote, const Subscription *member) noexcept nogil:
    """Return whether the server that sent a message wants it delivered to the member's queue group."""
    cdef uint32_t i
    for i in range(remote.nqueues):
        if remote.queues[i].n == member.queue_len and memcmp(
                remote.queues[i].p, sub_queue(member), member.queue_len) == 0:
            return True
    return remote.all_groups


cdef inline Subscription *deliver_to_group(
    const Message *m, const QueueGroup *group, uint32_t n, Frames *frames, LastOnes *last, const MatchResult *r
) noexcept nogil:
    """Deliver to one of the first n members of a queue group, which are no links'; try the others when it cannot take
    the message. NULL: none has."""
    cdef uint32_t i, start = poller_random(m.ps) % n if n > 1 else 0
    for i in range(n):
        if deliver_to_member(m, group.subs[(start + i) % n], frames, last, r):
            return group.subs[(start + i) % n]
    return NULL


cdef inline bint deliver_to_member(
    const Message *m, Subscription *s, Frames *frames, LastOnes *last, const MatchResult *r
) noexcept nogil:
    if likely(s.flags == 0) or not (s.flags & SUB_NATIVE or is_native_shadow(s)):
        return deliver_msg(m, s, frames)
    if load8(&s.closed) or (s.flags == SUB_SHADOW and m.hop != NULL):
        return False
    if not add_last(last, s, r):
        (<Connection> m.origin).out_of_memory(WRITE_ERROR)
        return False
    return True


cdef Subscription *deliver_to_linked_group(
    const Message *m, const QueueGroup *group, Frames *frames, LastOnes *last, Targets *targets, const MatchResult *r
) noexcept nogil:
    """Deliver to one member of a queue group that has members at other servers.

    All members of the cluster are drawn alike; those behind leaf nodes come second, those in other clusters last. What
    comes over a route, or from a hub, goes to no other member of the cluster than one here.
    """
    cdef Subscription *s
    cdef uint32_t i, start
    cdef bint routed = m.remote != NULL and (<Subscriber> m.origin).kind == ROUTER
    if routed or (m.remote != NULL and (<Subscriber> m.origin).spoke) or group.near == group.local:
        s = deliver_to_group(m, group, group.local, frames, last, r)
        if s != NULL:
            return s
    else:
        start = draw(m, group, 0, group.near)
        for i in range(group.near):
            s = group.subs[(start + i) % group.near]
            if targets_add(targets, m, s) if is_link(s) else deliver_to_member(m, s, frames, last, r):
                return s
    s = add_behind_leaves(m, group, targets)
    if s != NULL:
        return s
    if routed:
        return add_for_routed(m, group, targets)
    s = nearest_gateway(m, group)
    return s if s != NULL and targets_add(targets, m, s) else NULL


cdef uint32_t draw(const Message *m, const QueueGroup *group, uint32_t begin, uint32_t end) noexcept nogil:
    """Return the index of one of the subscriptions from `begin` to `end`, by their weights."""
    cdef uint32_t singles = max(group.local, begin) - begin   # these weigh 1
    cdef uint32_t i, weight
    cdef uint64_t total = singles
    for i in range(begin + singles, end):
        total += sub_weight(group.subs[i])
    if total <= 1:
        return begin
    total = poller_random(m.ps) % total
    if total < singles:
        return begin + <uint32_t> total
    total -= singles
    for i in range(begin + singles, end):
        weight = sub_weight(group.subs[i])
        if total < weight:
            return i
        total -= weight
    return begin   # a weight has changed meanwhile


cdef Subscription *nearest_gateway(const Message *m, const QueueGroup *group) noexcept nogil:
    """Return a member in the nearest other cluster, for what nobody in this one takes. NULL: none may take it."""
    cdef Subscription *s
    cdef Subscription *nearest = NULL
    cdef uint32_t i
    for i in range(group.own, group.n):
        s = group.subs[i]
        if not may_go_over(m, s) or load8(&s.closed) or load8(&(<Subscriber> s.client).closing):
            continue
        if nearest == NULL or gateway_rank(s) < gateway_rank(nearest):
            nearest = s
    return nearest


cdef Subscription *add_behind_leaves(const Message *m, const QueueGroup *group, Targets *targets) noexcept nogil:
    """Send to a member behind a leaf node, of this server or another one. NULL: none takes the message."""
    cdef uint32_t i, n = group.own - group.near
    cdef uint32_t start = draw(m, group, group.near, group.own) - group.near if n > 1 else 0
    cdef Subscription *s
    for i in range(n):
        s = group.subs[group.near + (start + i) % n]
        if may_take(m, s) and targets_add(targets, m, s):
            return s
    return NULL


cdef inline bint may_take(const Message *m, const Subscription *s) noexcept nogil:
    """Return whether a member behind a leaf node may take a message, by where it comes from."""
    cdef Slice cluster, origin
    if not may_go_over(m, s):
        return False
    return not (message_origin(m, &cluster) and routed_origin(s, &origin) and same_cluster(&cluster, &origin))


cdef Subscription *add_for_routed(const Message *m, const QueueGroup *group, Targets *targets) noexcept nogil:
    """Send what came over a route to a further server, or back: the member that was meant has gone. NULL: to none.

    Not when a member here has refused it: servers where all refuse would pass it round for ever.
    """
    cdef uint32_t i, n = group.own - group.local
    cdef uint32_t start = poller_random(m.ps) % n if n > 1 else 0
    cdef Subscription *s
    for i in range(group.own):
        s = group.subs[i]
        if s.kind != ROUTER and not load8(&s.closed) and not load8(&(<Subscriber> s.client).closing):
            return NULL
    for i in range(n):
        s = group.subs[group.local + (start + i) % n]
        if s.kind == ROUTER and targets_add(targets, m, s):
            return s
    return NULL


cdef inline bint deliver_msg(const Message *m, Subscription *s, Frames *frames) noexcept nogil:
    """Deliver to a subscription that is not native. Return whether it received the message."""
    if unlikely(s.flags != 0):
        return deliver_shadow(m, s, frames)
    if unlikely(m.trace != NULL):
        return deliver_traced(m, s, frames)
    return deliver(m, s, frames) == EGRESS_OK


cdef bint deliver_shadow(const Message *m, Subscription *s, Frames *frames) noexcept nogil:
    """Deliver through a stream import, under the subject that the importing account gives the message."""
    cdef char[IMPORTED_ROOM] few
    cdef StreamImport *im = import_sub(s).what
    cdef Message imported
    cdef Frames own
    cdef bint delivered
    if m.hop != NULL:
        return False   # a message from a service import is not exported again as a stream
    if im.use_published:
        return deliver_import(m, s, im, frames)
    imported = m[0]
    imported.line = NULL
    imported.shown.p = NULL
    imported.subject = imported_subject(m, im, few)
    if imported.subject.p == NULL:
        (<Connection> m.origin).out_of_memory(WRITE_ERROR)
        return False
    frames_begin_like(&own, frames, m)
    delivered = deliver_import(&imported, s, im, &own)
    frames_end(&own)
    if im.tr != NULL and imported.subject.p != few:
        free(imported.subject.p)
    return delivered


cdef bint deliver_import(const Message *m, Subscription *s, const StreamImport *im, Frames *frames) noexcept nogil:
    cdef Message untraced
    if m.trace == NULL:
        return deliver(m, s, frames) == EGRESS_OK
    trace_stream_export(m.trace, &(<Account> im.owner).info_name, &m.subject)
    if im.allow_trace:
        return deliver_traced(m, s, frames)
    if m.trace.only:
        return True
    untraced = m[0]
    untraced.trace = NULL
    return deliver(&untraced, s, frames) == EGRESS_OK


cdef bint deliver_traced(const Message *m, Subscription *s, Frames *frames) noexcept nogil:
    """Deliver and note the outcome in the trace; with `trace.only`, note what the outcome would be."""
    cdef Slice subject, queue
    cdef Egress outcome
    if s.internal:
        return deliver(m, s, frames) == EGRESS_OK
    if is_echo(m, s):
        outcome = EGRESS_NO_ECHO
    elif is_denied(m, s):
        outcome = EGRESS_SUB_DENY
    elif load8(&s.closed):
        outcome = EGRESS_SUB_CLOSED
    elif load8(&(<Subscriber> s.client).closing):
        outcome = EGRESS_CLIENT_CLOSED   # its subscriptions are being removed
    else:
        outcome = EGRESS_OK if m.trace.only else deliver(m, s, frames)
    subject.p = <char *> sub_subject(s)
    subject.n = s.subject_len
    queue.p = <char *> sub_queue(s)
    queue.n = s.queue_len
    trace_egress(m.trace, (<Subscriber> s.client).cid, &subject, &queue, outcome)
    return outcome == EGRESS_OK


cdef inline bint is_echo(const Message *m, const Subscription *s) noexcept nogil:
    return s.client == m.origin and not (<Subscriber> m.origin).echo


cdef inline bint is_denied(const Message *m, const Subscription *s) noexcept nogil:
    return load8(&(<Subscriber> s.client).guard.checks) & CHECK_DELIVERIES and delivery_denied(
        &(<Subscriber> s.client).guard, m.ps, &m.subject, s)


cdef inline bint note_remote_request(const Message *m, const Subscription *s) noexcept nogil:
    """A client gets a request that has come over a link: remember its mapped reply, and note it if the answer is
    measured. False: no memory."""
    cdef Slice reply = plain_reply(&m.reply)
    if unlikely(is_tracked_reply(&reply)) and m.hop == NULL:   # else this server has made the reply
        note_request(<Subscriber> s.client, m, &reply)
    if not is_mapped_reply(&m.reply) or m.reply.n > MOST_MAPPED:
        return True
    return remember_reply(<Subscriber> s.client, m)


cdef Egress deliver(const Message *m, Subscription *s, Frames *frames) noexcept nogil:
    """Queue a message for a subscription's client, unless it is an echo, denied, or the subscription has ended."""
    cdef Frame *frame
    cdef int64_t nm, max
    cdef Egress outcome
    if is_echo(m, s):
        return EGRESS_NO_ECHO
    if unlikely(load8(&s.closed)):
        return EGRESS_SUB_CLOSED
    if s.internal:
        addi64_seq(&s.nm, 1)
        return EGRESS_OK if deliver_internal(m, s) else EGRESS_CLIENT_CLOSED
    if unlikely(is_denied(m, s)):
        return EGRESS_SUB_DENY
    # Not through a stream import: a requester of another account must not choose where messages of this one go.
    if unlikely(m.remote != NULL) and s.kind == CLIENT and m.reply.n and not s.flags & SUB_SHADOW:
        if not note_remote_request(m, s):
            (<Connection> m.origin).out_of_memory(WRITE_ERROR)
            return EGRESS_CLIENT_CLOSED
    frame = frame_for(m, frames, load8(&(<Subscriber> s.client).form))
    if unlikely(frame == NULL):
        (<Connection> m.origin).out_of_memory(WRITE_ERROR)
        return EGRESS_CLIENT_CLOSED
    frame_address(frame, sub_sid(s), s.sid_len)
    if (<Subscriber> s.client).ps != m.ps:
        return deliver_remote(<Subscriber> s.client, m, s, frame)
    if m.ps.solo:
        nm = loadi64(&s.nm) + 1
        storei64(&s.nm, nm)
    else:
        nm = addi64_seq(&s.nm, 1) + 1
    max = loadi64(&s.max)
    if unlikely(max > 0 and nm > max):
        return EGRESS_AUTO_UNSUBSCRIBED   # another poller has delivered the last message; the owner will remove it
    outcome = deliver_local(<Subscriber> s.client, m, frame)
    if unlikely(max > 0 and nm == max) and not load8(&(<Subscriber> s.client).closing):
        note_shown(m)
        hand_over_first(m.ps)
        (<Subscriber> s.client).debugf(LOG_AUTO_UNSUBSCRIBE, max, sub_sid(s), s.sid_len)
        unsubscribe(<Subscriber> s.client, s)
    return outcome


# -- to the server itself ----------------------------------------------------------------------------------------------

cdef inline bint call_native(const Message *m, const Subscription *s) noexcept nogil:
    # Called for a message that is only traced, too: streams trace for themselves.
    cdef NativeSub *native = native_sub(s)
    hand_over_first(m.ps)
    return native.fn(native.ctx, m, s)


cdef bint deliver_native_shadow(const Message *m, Subscriber dest, const Subscription *shadow) noexcept nogil:
    cdef Subscription *s
    pthread_mutex_lock(&dest.lock)
    s = subtable_find(&dest.subs, sub_sid(shadow), shadow.sid_len)
    pthread_mutex_unlock(&dest.lock)
    return s != NULL and s.flags & SUB_NATIVE and call_native(m, s)


cdef bint deliver_internal(const Message *m, const Subscription *s) noexcept nogil:
    """Deliver to a subscription of the server itself."""
    if (<Subscriber> s.client).kind == JETSTREAM:
        return deliver_native_shadow(m, <Subscriber> s.client, s)
    return post_msg(m, <Subscriber> s.client, s)


cdef int producer_of(Subscriber origin) noexcept nogil:
    """Return what a connection is for those who listen to other servers. Said here: it may be closed by then."""
    if origin.kind == ROUTER or origin.kind == GATEWAY:
        return PRODUCER_CLUSTER
    if origin.kind == LEAF and load8(&(<Account> origin.account)._is_system):
        return PRODUCER_LEAF
    return PRODUCER_CLIENT


cdef bint post_msg(const Message *m, Subscriber dest, const Subscription *s) noexcept nogil:
    """Post a message to the control plane."""
    cdef Slice account = (<Account> m.account).info_name
    cdef Slice requester
    cdef Event *ev
    cdef char *p
    note_shown(m)
    hand_over_first(m.ps)
    requester.p = NULL
    requester.n = 0
    if m.hop != NULL and m.hop.request:
        requester = m.hop.info
        account = (<Account> m.hop.account).info_name
    ev = dest.inbox.new_event(
        EV_MSG, <void *> dest, &dest.source, m.subject.n + m.reply.n + m.n + requester.n + account.n + s.sid_len)
    if ev == NULL:
        (<Connection> m.origin).out_of_memory(WRITE_ERROR)
        return False
    ev.a = <int64_t> (<Connection> m.origin).cid
    ev.b = producer_of(<Subscriber> m.origin)
    ev.part[SUBJECT_PART] = <uint32_t> m.subject.n
    ev.part[REPLY_PART] = <uint32_t> m.reply.n
    ev.part[HEADER_PART] = <uint32_t> m.hdr
    ev.part[PAYLOAD_PART] = <uint32_t> (m.n - m.hdr)
    ev.part[REQUESTER_PART] = <uint32_t> requester.n
    ev.part[ACCOUNT_PART] = <uint32_t> account.n
    p = put(ev.data, m.subject.p, m.subject.n)
    if m.reply.p != NULL:
        p = put(p, m.reply.p, m.reply.n)
    if m.n:
        p = put(p, m.data, m.n)
    if requester.n:
        p = put(p, requester.p, requester.n)
    p = put(p, account.p, account.n)
    put(p, sub_sid(s), s.sid_len)
    return dest.inbox.post_caused(ev, &(<Connection> m.origin).source, charged_account(m))
