"""The way back of a request that went over a gateway; see gateway_reply.pxd."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.accounts.subscriptions cimport sub_came
from gnats.core.messages.mapped_replies cimport (
    MappedReplies,
    MappedReply,
    mapped_find,
    mapped_note,
    mapped_sweep,
)
from gnats.core.messages.message cimport Message
from gnats.core.messages.reserved cimport CLUSTER_AT, HASH_N, MAPPED_N, SERVER_AT, is_mapped_reply
from gnats.core.runtime.kinds cimport GATEWAY, ROUTER
from gnats.core.runtime.moment cimport is_recent
from gnats.core.runtime.quiesce cimport qs_advance, qs_passed, qs_retire
from gnats.core.runtime.slice cimport Slice
from gnats.core.runtime.state cimport ServerState
from gnats.core.runtime.turn cimport turn_spend
from gnats.core.subjects.sublist cimport SUB_SERVICE, SUB_SHADOW, MatchResult, Subscription
from gnats.includes.atomics cimport exchange64, load8, load32, load_ptr_acquire, store_ptr_release
from gnats.includes.layout cimport static_assert
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock

cdef bytes DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def name_hash(bytes name not None) -> bytes:
    """Return the hash of a cluster's name, or of a server's id, as it stands in mapped replies (getHash)."""
    import hashlib   # loads OpenSSL, which most servers do without

    return bytes([DIGITS[byte % len(DIGITS)] for byte in hashlib.sha256(name).digest()[:HASH_N]])


@cython.no_gc_clear   # the table borrows the links
cdef class GatewayReplies:
    """What a server's pollers know of its gateways, to map replies and to send what answers them.

    It lives as long as the pollers run. Python calls its methods on the control loop only.
    """
    cdef ServerState state
    cdef bytes prefix
    cdef dict links
    cdef dict routes
    cdef list kept   # (grace number, the links of a former table)

    def __cinit__(self, ServerState state not None):
        self.state = state
        self.links = {}
        self.routes = {}
        self.kept = []

    def __dealloc__(self):
        cdef void *old
        if self.state is not None:
            old = <void *> exchange64(<uint64_t *> &self.state.gateways, 0)
            if old != NULL:
                qs_retire(old)

    def set_gateway(self, bytes name not None, bytes server_id not None) -> None:
        """Begin to map replies: this server is of the cluster `name`. Call it once. Raises MemoryError."""
        self.prefix = b"_GR_.%b.%b." % (name_hash(name), name_hash(server_id))
        self.publish(self.links, self.routes)

    def set_gateway_links(self, dict links not None) -> None:
        """Set the outbound connections, by the hash of the cluster's name. Raises MemoryError."""
        self.publish(dict(links), self.routes)

    def set_gateway_routes(self, dict routes not None) -> None:
        """Set the routes of this cluster, by the hash of the server's id. Raises MemoryError."""
        self.publish(self.links, dict(routes))

    cdef int publish(self, dict links, dict routes) except -1:
        cdef GatewayTable *t = NULL
        cdef uint32_t n = 0
        if self.prefix is not None:
            t = <GatewayTable *> malloc(sizeof(GatewayTable) + (len(links) + len(routes)) * sizeof(GatewayPlace))
            if t == NULL:
                raise MemoryError
            memcpy(t.prefix, PyBytes_AS_STRING(self.prefix), MAPPED_N)
            t.nclusters = len(links)
            t.nservers = len(routes)
            try:
                for places in links, routes:
                    for place, link in places.items():
                        set_place(&t.at[n], place, link)
                        n += 1
            except (TypeError, ValueError):
                free(t)
                raise
        self.replace(t, links, routes)
        return 0

    cdef void replace(self, GatewayTable *t, dict links, dict routes):
        cdef void *old = <void *> exchange64(<uint64_t *> &self.state.gateways, <uint64_t> t)
        cdef list before = [*self.links.values(), *self.routes.values()]
        self.links = links
        self.routes = routes
        self.kept = [kept for kept in self.kept if not qs_passed(kept[0])]
        if old != NULL:
            qs_retire(old)
            self.kept.append((qs_advance(), before))


cdef int set_place(GatewayPlace *place, bytes hash, Subscriber link) except -1:
    if PyBytes_GET_SIZE(hash) != HASH_N:
        raise ValueError(f"not a hash: {hash!r}")
    memcpy(place.hash, PyBytes_AS_STRING(hash), HASH_N)
    place.link = <void *> link
    return 0


cdef bint same_hash(const char *a, const char *b) noexcept nogil:
    return memcmp(a, b, HASH_N) == 0


cdef bint names_server(const GatewayTable *t, const char *mapped) noexcept nogil:
    return same_hash(mapped + SERVER_AT, t.prefix + SERVER_AT)


cdef void *cluster_link(const GatewayTable *t, const char *mapped) noexcept nogil:
    return find_place(t.at, t.nclusters, mapped + CLUSTER_AT)


cdef void *server_link(const GatewayTable *t, const char *mapped) noexcept nogil:
    return find_place(t.at + t.nclusters, t.nservers, mapped + SERVER_AT)


cdef inline void *find_place(const GatewayPlace *at, uint32_t n, const char *hash) noexcept nogil:
    cdef uint32_t i
    for i in range(n):
        if same_hash(at[i].hash, hash):
            return at[i].link
    return NULL


# -- out ---------------------------------------------------------------------------------------------------------------

cdef const char *prefix_for(const Message *m, Account account) noexcept nogil:
    cdef const GatewayTable *t = gateway_table((<Subscriber> m.origin).server)
    if t == NULL or m.reply.n == 0 or is_mapped_reply(&m.reply):
        return NULL
    if not is_recent(load32(&account.newest), m.ps.now) or not has_recent(account, m):
        return NULL
    return t.prefix


cdef bint has_recent(Account account, const Message *m) noexcept nogil:
    """Return whether a subscription that matches the reply, of this server's own, is recent
    (shouldMapReplyForGatewaySend). Without memory: yes, that loses nothing."""
    cdef MatchResult *r = account.sublist.match(m.reply.p, m.reply.n)
    cdef bint found = False
    cdef uint32_t i, k
    if r == NULL:
        return True
    turn_spend(&m.ps.turn, r.visited)
    for i in range(r.npsubs):
        if came_lately(r.psubs[i], m.ps.now):
            found = True
            break
    for k in range(r.nqgroups):
        for i in range(r.qgroups[k].n):
            if found or came_lately(r.qgroups[k].subs[i], m.ps.now):
                found = True
                break
    free(r)
    return found


cdef inline bint came_lately(const Subscription *s, int64_t now) noexcept nogil:
    return (
        s.kind != ROUTER and s.kind != GATEWAY and not s.flags & (SUB_SERVICE | SUB_SHADOW)
        and not load8(<unsigned char *> &s.closed) and is_recent(sub_came(s), now))


# -- in ----------------------------------------------------------------------------------------------------------------

cdef bint remember_reply(Subscriber c, const Message *m) noexcept nogil:
    cdef MappedReplies *made
    cdef bint noted
    pthread_mutex_lock(&c.lock)
    if c.mapped_replies == NULL:
        made = <MappedReplies *> calloc(1, sizeof(MappedReplies))
        if made != NULL:
            store_ptr_release(<void **> &c.mapped_replies, made)
    noted = c.mapped_replies != NULL and mapped_note(c.mapped_replies, &m.reply, m.ps.now)
    pthread_mutex_unlock(&c.lock)
    return noted


cdef Slice find_reply(Subscriber c, const Slice *plain, char *few, size_t room) noexcept nogil:
    cdef const MappedReply *e
    cdef Slice found
    found.p = NULL
    found.n = 0
    pthread_mutex_lock(&c.lock)
    e = mapped_find(c.mapped_replies, plain, c.ps.now)
    if e != NULL:
        found.n = e.n
        found.p = few if e.n <= room else <char *> malloc(e.n)
        if found.p != NULL:
            memcpy(found.p, e.text, e.n)
    else:
        sweep(c)
    pthread_mutex_unlock(&c.lock)
    return found


cdef void sweep(Subscriber c) noexcept nogil:
    """Forget old replies, and the table when it is empty: then publishing looks nowhere. The lock is held."""
    cdef MappedReplies *t = c.mapped_replies
    mapped_sweep(t, c.ps.now)
    if t.n == 0:
        store_ptr_release(<void **> &c.mapped_replies, NULL)
        free(t)


cdef void sweep_replies(Subscriber c) noexcept nogil:
    if load_ptr_acquire(<void **> &c.mapped_replies) == NULL:
        return
    pthread_mutex_lock(&c.lock)
    sweep(c)
    pthread_mutex_unlock(&c.lock)


# The prefix of this server's replies has the length that all mapped replies have.
static_assert(SERVER_AT + HASH_N + 1 == MAPPED_N)
