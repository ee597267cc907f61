"""Send what answers a mapped reply, and take what arrives; see gateway_return.pxd."""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.accounts.subscriptions cimport AccountSub
from gnats.core.messages.encode cimport Frames, frames_begin, frames_end
from gnats.core.messages.message cimport Message, RemoteArgs
from gnats.core.messages.reserved cimport MAPPED_N
from gnats.core.net.connection cimport WRITE_ERROR
from gnats.core.routing.gateway_reply cimport (
    GatewayTable,
    cluster_link,
    find_reply,
    gateway_table,
    names_cluster,
    names_server,
    server_link,
)
from gnats.core.routing.origins cimport may_go_over
from gnats.core.routing.route cimport ROUTE_DELIVERED, ROUTE_NO_MEMORY, ROUTE_NOBODY, RouteOutcome
from gnats.core.routing.targets cimport Targets, targets_add, targets_begin, targets_forward, targets_send
from gnats.core.runtime.kinds cimport GATEWAY, LEAF
from gnats.core.runtime.slice cimport Slice
from gnats.core.runtime.state cimport ServerState
from gnats.core.subjects.match_cache cimport results_match
from gnats.core.subjects.sublist cimport SUB_ACCOUNT, MatchResult, Subscription
from gnats.includes.atomics cimport bump64
from gnats.includes.layout cimport static_assert

cdef enum:
    ROOM = 256    # bytes of a mapped reply that fit on the stack


# A subscription of a link that is in no sublist: the message goes there whatever the interest.
cdef struct Anyway:
    AccountSub account     # stands before `sub`
    Subscription sub


cdef bint answer_request(Subscriber c, const Message *m) noexcept nogil:
    cdef char[ROOM] few
    cdef Message answer
    cdef Slice mapped = find_reply(c, &m.subject, few, ROOM)
    if mapped.n == 0:
        return False
    if mapped.p == NULL:
        c.out_of_memory(WRITE_ERROR)
        return True
    answer = m[0]
    answer.subject = mapped
    answer.line = NULL
    if send_answer(&answer, <Account> m.account) == ROUTE_NO_MEMORY:
        c.out_of_memory(WRITE_ERROR)
    if mapped.p != few:
        free(mapped.p)
    return True


cdef bint is_back(ServerState server, Slice *subject) noexcept nogil:
    cdef const GatewayTable *t = gateway_table(server)
    if t == NULL or not names_cluster(t, subject.p) or not names_server(t, subject.p):
        return False
    subject.p += MAPPED_N
    subject.n -= MAPPED_N
    return True


cdef RouteOutcome send_answer(const Message *m, Account account) noexcept nogil:
    cdef const GatewayTable *t = gateway_table((<Subscriber> m.origin).server)
    cdef void *link = NULL
    cdef MatchResult *r = results_match(&m.ps.cache, account.sublist, m.subject.p, m.subject.n)
    cdef Anyway over
    cdef Targets targets
    cdef uint32_t i
    if r == NULL:
        return ROUTE_NO_MEMORY
    targets_begin(&targets)
    for i in range(r.npsubs):
        if r.psubs[i].kind == LEAF and (<Subscriber> r.psubs[i].client).spoke and may_go_over(m, r.psubs[i]):
            targets_add(&targets, m, r.psubs[i])
    if t != NULL:
        link = server_link(t, m.subject.p) if names_cluster(t, m.subject.p) else cluster_link(t, m.subject.p)
    if link != NULL:
        add_anyway(&targets, m, &over, link, account)
    return ROUTE_DELIVERED if send_all(&targets, m, False) else ROUTE_NOBODY


cdef void add_anyway(Targets *targets, const Message *m, Anyway *over, void *link, Account account) noexcept nogil:
    static_assert(sizeof(Anyway) == sizeof(AccountSub) + sizeof(Subscription))
    memset(over, 0, sizeof(Anyway))
    over.account.account = <void *> account
    over.sub.client = link
    over.sub.kind = (<Subscriber> link).kind
    over.sub.flags = SUB_ACCOUNT
    targets_add(targets, m, &over.sub)


cdef bint send_all(Targets *targets, const Message *m, bint passes) noexcept nogil:
    """Send to links. `passes`: the message only passes through this server, and no account counts it."""
    cdef Frames frames
    cdef uint64_t sent
    if targets.n == 0:
        return False
    frames_begin(&frames)
    sent = targets_forward(targets, m, &frames) if passes else targets_send(targets, m, &frames)
    frames_end(&frames)
    bump64(&m.ps.out_msgs, sent)
    bump64(&m.ps.out_bytes, sent * m.n)
    return sent != 0


cdef bint take_answer(Subscriber c, Message *m, RemoteArgs *own) noexcept nogil:
    cdef const GatewayTable *t = gateway_table(c.server)
    cdef void *link = NULL
    cdef Anyway over
    cdef Targets targets
    if t == NULL:
        return True
    if not names_cluster(t, m.subject.p):
        if c.kind == LEAF:   # it sends them to its hub, which knows the way
            send_answer(m, <Account> m.account)
        return False
    if c.kind == GATEWAY and not names_server(t, m.subject.p):
        link = server_link(t, m.subject.p)
    if link != NULL:
        targets_begin(&targets)
        add_anyway(&targets, m, &over, link, <Account> m.account)
        if targets.n != 0:
            send_all(&targets, m, True)
            return False
    own[0] = m.remote[0]
    own.all_groups = 1
    own.returned = 1
    m.remote = own
    m.subject.p += MAPPED_N
    m.subject.n -= MAPPED_N
    return True
