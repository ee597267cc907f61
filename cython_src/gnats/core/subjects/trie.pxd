"""The trie below a Sublist: its subscriptions and nodes, the table of its edges, and the walk along a subject.

Wildcard children hang from their parent; the literal edges of all nodes live in one hash table, so that a node costs
little more than its token. A queue group is a node as well, below the node of its subject. All of this belongs to one
Sublist and needs its lock: to write for changes, else to read.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from gnats.core.subjects.subject cimport hash_bytes, hash_seed_a, hash_seed_b, mul_mix, token_end
from gnats.includes.atomics cimport load32

cdef extern from * nogil:
    int clz32 "__builtin_clz"(uint32_t x)

cdef enum:
    LITERAL  # kinds of node
    PWC      # the child for `*`
    FWC      # the child for `>`
    GROUP    # a queue group of its parent's subject

cdef enum:
    KIND_ROUTER = 1   # kinds of connection, of links; their queue subscriptions have a weight, `qw`
    KIND_GATEWAY = 2
    KIND_LEAF = 4

cdef enum:
    # A client's, in an account that its own imports a stream from; core.accounts.account.ImportSub stands before it.
    SUB_SHADOW = 1
    # A function handles its messages; core.messages.message.NativeSub stands before it.
    SUB_SERVICE = 2      # requests to an imported service
    SUB_RESPONSES = 4    # responses to an exported one
    SUB_NATIVE = 8       # messages for JetStream
    # A further one of a subscriber that is in this sublist already: skipped where each subscriber is to be found once.
    SUB_FURTHER = 16
    # A link's to another server, which subscribes in any account; core.accounts.subscriptions.AccountSub stands before
    # it.
    SUB_ACCOUNT = 32


cdef struct Node


cdef struct Subscription:
    Subscription *next   # chain in the subscriber's sid table; the owner changes it under the connection's lock
    uint32_t hash        # of the sid, for that table
    uint32_t index       # position in the node's list; under the sublist's write lock
    void *client         # the subscriber, a borrowed core.accounts.subscriber.Subscriber; NULL only in tests
    Node *node           # its node, NULL when it is in no trie; under the sublist's write lock
    int64_t nm           # messages delivered; atomic
    int64_t max          # auto-unsubscribe after this many, 0 for never; atomic
    uint32_t subject_len
    uint32_t queue_len   # 0: it is in no queue group
    uint32_t sid_len
    # Weight of a remote queue subscription, 0 counts as 1; atomic; while it is in a trie, only
    # Sublist.update_remote_qsub may change it. Of one of this server's own: the moment it came (core.runtime.moment).
    uint32_t qw
    uint8_t kind         # kind of the subscriber's connection (CLIENT, ROUTER, ...)
    uint8_t closed       # 1 once unsubscribed or its connection has gone; atomic
    uint8_t internal     # the server itself is the subscriber
    uint8_t flags        # SUB_*; set before it is in a trie
    char data[1]         # subject, queue and sid, adjacent


# The subscriptions to one subject outside of queue groups, or in one of its groups, by what is at the other end. In a
# group, a subscription with a weight counts that many times.
cdef struct Interest:
    uint32_t local       # clients, and the server itself
    uint32_t remote      # links to other servers: routes, gateways and leaf nodes
    uint32_t services    # imported services (SUB_SERVICE); servers do not send each other interest in them


# ---- nodes; only this module and the Sublist look inside ----

cdef enum:
    CAP_BITS = 6                            # bits of SubVec.shape that are not a count
    MOST_SERVICES = (1 << (32 - CAP_BITS)) - 1


cdef struct SubVec:
    uint32_t shape      # low CAP_BITS: logarithm of the number of places; the rest: subscriptions of imported services
    uint32_t remote     # subscriptions of links
    Subscription *subs[1]


cdef union Subs:
    Subscription *one   # nsubs is 0 or 1
    SubVec *many        # nsubs is larger


cdef struct Weights:
    uint32_t local
    uint32_t remote


cdef union Below:
    Node *groups        # of a subject: its first queue group
    Weights weights     # of a queue group: see Interest


cdef struct Node:
    # The fields that a leaf does not use come first, so that those it uses are close together in memory.
    Node *pwc           # child for `*`; of a queue group: the next group
    Node *fwc           # child for `>`; of a queue group: the previous one
    Below below
    uint32_t nchildren  # literal children; 0 in a queue group
    uint32_t nsubs
    Subs subs           # subscriptions in no queue group, or the members of one; those of links stand first
    Node *parent
    Node *chain         # next node in the same bucket
    uint32_t hash       # of the edge
    uint32_t token_len
    uint8_t kind
    char token[1]       # of a queue group: its name


cdef inline Node *next_group(const Node *group) noexcept nogil:
    return group.pwc


cdef inline Subscription **node_subs(Node *node) noexcept nogil:
    if node.nsubs > 1:
        return node.subs.many.subs
    return &node.subs.one


cdef inline uint32_t node_links(const Node *node) noexcept nogil:
    """Return how many of a node's subscriptions are links': these stand first."""
    if node.nsubs > 1:
        return node.subs.many.remote
    return node.nsubs and is_remote(node.subs.one)


cdef inline Node *node_new(Node *parent, uint8_t kind, const char *token, size_t n) noexcept nogil:
    cdef Node head
    cdef Node *node = <Node *>malloc(max(<size_t>(head.token - <char *>&head) + n, sizeof(Node)))
    if node != NULL:
        memset(node, 0, sizeof(Node))
        node.parent = parent
        node.kind = kind
        node.token_len = <uint32_t>n
        memcpy(node.token, token, n)
    return node


cdef inline void node_free(Node *node) noexcept nogil:
    if node.nsubs > 1:
        free(node.subs.many)
    free(node)


cdef inline bint node_is_empty(const Node *node) noexcept nogil:
    return node.nsubs == 0 and (node.kind == GROUP or (
        node.nchildren == 0 and node.below.groups == NULL and node.pwc == NULL and node.fwc == NULL))


cdef inline bint is_remote(const Subscription *s) noexcept nogil:
    return s.kind == KIND_ROUTER or s.kind == KIND_GATEWAY or s.kind == KIND_LEAF


cdef inline bint speaks_for_leaf(const Subscription *s) noexcept nogil:
    """Return whether subscribers behind leaf nodes are meant, here or at another server of the cluster: LS+ of a route,
    whose sid begins with L (core.links.remote_subs)."""
    cdef const char *sid = s.data + s.subject_len + s.queue_len
    return s.kind == KIND_LEAF or (s.kind == KIND_ROUTER and s.sid_len > 1 and sid[0] == c'L' and sid[1] == c' ')


cdef inline uint32_t sub_weight(const Subscription *s) noexcept nogil:
    cdef uint32_t weight = load32(&s.qw) if is_remote(s) else 1
    return weight if weight > 1 else 1


cdef inline void node_interest(const Node *node, Interest *interest) noexcept nogil:
    interest.local = interest.remote = interest.services = 0
    if node.kind == GROUP:
        interest.local = node.below.weights.local
        interest.remote = node.below.weights.remote
        return
    interest.remote = node_links(node)
    if node.nsubs > 1:
        interest.services = node.subs.many.shape >> CAP_BITS
    elif node.nsubs == 1:
        interest.services = node.subs.one.flags & SUB_SERVICE != 0
    interest.local = node.nsubs - interest.remote - interest.services


cdef inline uint32_t interest_total(const Interest *interest) noexcept nogil:
    return interest.local + interest.remote + interest.services


cdef inline void weigh(Node *group, const Subscription *s, uint32_t weight) noexcept nogil:
    """Add a weight to a queue group; the negative of one takes it away."""
    if is_remote(s):
        group.below.weights.remote += weight
    else:
        group.below.weights.local += weight


cdef inline void vec_count(SubVec *vec, const Subscription *s, uint32_t more) noexcept nogil:
    """Count a subscription that comes (1) or goes (-1)."""
    if s.flags & SUB_SERVICE:
        vec.shape += more << CAP_BITS
    elif is_remote(s):
        vec.remote += more


cdef inline void vec_put(SubVec *vec, uint32_t at, Subscription *s) noexcept nogil:
    vec.subs[at] = s
    s.index = at


cdef inline SubVec *vec_resize(SubVec *vec, uint32_t bits) noexcept nogil:
    """Return a list with 2**bits places, NULL when out of memory. Its `shape` has yet to be set."""
    return <SubVec *>realloc(vec, sizeof(SubVec) + ((<size_t>1 << bits) - 1) * sizeof(Subscription *))


cdef inline bint node_add_sub(Node *node, Subscription *s) noexcept nogil:
    """Add a subscription; False when out of memory."""
    cdef uint32_t n = node.nsubs, at = n, bits
    cdef SubVec *vec
    if n == 0:
        node.subs.one = s
    else:
        if n == 1:
            vec = vec_resize(NULL, 2)
            if vec == NULL:
                return False
            vec.shape = 2
            vec.remote = 0
            vec.subs[0] = node.subs.one
            vec_count(vec, vec.subs[0], 1)
            node.subs.many = vec
        else:
            vec = node.subs.many
            bits = vec.shape & ((1 << CAP_BITS) - 1)
            if s.flags & SUB_SERVICE and vec.shape >> CAP_BITS == MOST_SERVICES:
                return False   # the count is full; memory ends earlier
            if n == <uint32_t>1 << bits:
                vec = vec_resize(vec, bits + 1)
                if vec == NULL:
                    return False
                vec.shape += 1
                node.subs.many = vec
        if is_remote(s):
            at = vec.remote
            if at != n:
                vec_put(vec, n, vec.subs[at])
        vec.subs[at] = s
        vec_count(vec, s, 1)
    node.nsubs = n + 1
    if node.kind == GROUP:
        weigh(node, s, sub_weight(s))
    s.node = node
    s.index = at
    return True


cdef inline void node_drop_sub(Node *node, Subscription *s) noexcept nogil:
    cdef uint32_t last = node.nsubs - 1, gap = s.index, bits
    cdef SubVec *vec
    if last > 0:
        vec = node.subs.many
        if is_remote(s):   # the last link takes its place
            vec_put(vec, gap, vec.subs[vec.remote - 1])
            gap = vec.remote - 1
        if gap != last:
            vec_put(vec, gap, vec.subs[last])
        if last == 1:
            node.subs.one = vec.subs[0]
            free(vec)
        else:
            vec_count(vec, s, <uint32_t>-1)
            bits = vec.shape & ((1 << CAP_BITS) - 1)
            if last < (<uint32_t>1 << bits) // 4:
                vec = vec_resize(vec, bits - 1)
                if vec != NULL:
                    vec.shape -= 1
                    node.subs.many = vec
    node.nsubs = last
    if node.kind == GROUP:
        weigh(node, s, -sub_weight(s))
    s.node = NULL


# ---- the table of edges ----

cdef struct EdgeTable:
    # Linear hashing (Litwin 1980): it grows and shrinks by one bucket at a time, so that no write pays for a rehash of
    # the whole table.
    Node **segments[32]  # segment i holds the 2**i buckets from 2**i - 1 on; NULL when none of them is in use
    uint32_t mask        # the smallest 2**k - 1 that covers all buckets
    uint32_t nbuckets
    uint32_t nnodes


cdef inline uint32_t edge_hash(const Node *parent, uint8_t kind, const char *token, size_t n) noexcept nogil:
    return <uint32_t>mul_mix(
        <uint64_t>parent ^ hash_seed_b, (<uint64_t>kind << 32 | hash_bytes(token, n)) ^ hash_seed_a)


cdef inline Node **bucket_at(EdgeTable *t, uint32_t b) noexcept nogil:
    cdef int segment = 31 - clz32(b + 1)
    return t.segments[segment] + (b + 1 - (<uint32_t>1 << segment))


cdef inline Node **bucket_of(EdgeTable *t, uint32_t hash) noexcept nogil:
    cdef uint32_t b = hash & t.mask
    return bucket_at(t, b if b < t.nbuckets else b & (t.mask >> 1))


cdef inline Node *edge_find(
    EdgeTable *t, const Node *parent, uint8_t kind, const char *token, size_t n,
) noexcept nogil:
    cdef uint32_t hash = edge_hash(parent, kind, token, n)
    cdef Node *node = bucket_of(t, hash)[0]
    while node != NULL and not (
        node.hash == hash and node.parent == parent and node.kind == kind and node.token_len == n
        and memcmp(node.token, token, n) == 0
    ):
        node = node.chain
    return node


cdef inline bint table_grow(EdgeTable *t) noexcept nogil:
    """Split a bucket into itself and a new last one. False when out of memory: chains get longer then."""
    cdef uint32_t b = t.nbuckets
    cdef int segment = 31 - clz32(b + 1)
    cdef Node **link
    cdef Node **new
    cdef Node *node
    if t.segments[segment] == NULL:
        t.segments[segment] = <Node **>malloc(sizeof(Node *) << segment)
        if t.segments[segment] == NULL:
            return False
    if b > t.mask:
        t.mask = t.mask << 1 | 1
    t.nbuckets = b + 1
    new = bucket_at(t, b)
    new[0] = NULL
    if b == 0:
        return True
    link = bucket_at(t, b & (t.mask >> 1))
    while link[0] != NULL:
        node = link[0]
        if node.hash & t.mask == b:
            link[0] = node.chain
            node.chain = new[0]
            new[0] = node
        else:
            link = &node.chain
    return True


cdef inline void table_shrink(EdgeTable *t) noexcept nogil:
    """Merge the last bucket into the one that it was split from."""
    cdef uint32_t b = t.nbuckets - 1
    cdef Node **link = bucket_at(t, b & (t.mask >> 1))
    cdef int segment = 31 - clz32(b + 1)
    while link[0] != NULL:
        link = &link[0].chain
    link[0] = bucket_at(t, b)[0]
    t.nbuckets = b
    if b == (t.mask >> 1) + 1:
        t.mask >>= 1
    if b + 1 == <uint32_t>1 << segment:
        free(t.segments[segment])
        t.segments[segment] = NULL


cdef inline void edge_add(EdgeTable *t, Node *node) noexcept nogil:
    cdef Node **bucket
    node.hash = edge_hash(node.parent, node.kind, node.token, node.token_len)
    bucket = bucket_of(t, node.hash)
    node.chain = bucket[0]
    bucket[0] = node
    t.nnodes += 1
    while t.nnodes > t.nbuckets // 2 and table_grow(t):  # at least two buckets an edge: short chains
        pass


cdef inline void edge_remove(EdgeTable *t, Node *node) noexcept nogil:
    cdef Node **link = bucket_of(t, node.hash)
    while link[0] != node:
        link = &link[0].chain
    link[0] = node.chain
    t.nnodes -= 1
    while t.nbuckets // 4 > t.nnodes:
        table_shrink(t)


# ---- the walk ----

cdef enum:
    ARRIVE
    TRY_LITERAL
    TRY_PWC
    GO_UP


cdef struct Walk:
    EdgeTable *edges
    const char *subject
    size_t n
    Node *node       # the current node
    size_t start     # start of the first token below `node`; n + 1 at the end of the subject
    uint32_t open    # nodes from the root to `node` whose `*` child is still to be tried
    int step         # what to do next at `node`
    uint32_t visited  # nodes entered


cdef inline bint has_empty_token(const char *subject, size_t n) noexcept nogil:
    cdef size_t i
    cdef char before = c'.'
    for i in range(n):
        if subject[i] == c'.' and before == c'.':
            return True
        before = subject[i]
    return before == c'.'


cdef inline Node *walk_next(Walk *w) noexcept nogil:
    """Return the next node that matches and has subscriptions, NULL after the last.

    Depth first and back up through the parents: it takes no memory and no recursion, however many tokens there are. It
    enters no node twice.
    """
    cdef Node *node
    cdef Node *child
    cdef size_t end
    while True:
        node = w.node
        if w.step == ARRIVE:
            w.visited += 1
            if w.start > w.n:
                w.step = GO_UP
                if node.nsubs > 0 or node.below.groups != NULL:
                    return node
                continue
            w.step = TRY_LITERAL
            if node.fwc != NULL:
                return node.fwc
        if w.step == TRY_LITERAL:
            w.step = TRY_PWC
            w.open += node.pwc != NULL
            if node.nchildren > 0:
                end = token_end(w.subject, w.n, w.start)
                child = edge_find(w.edges, node, LITERAL, w.subject + w.start, end - w.start)
                if child != NULL:
                    w.node = child
                    w.start = end + 1
                    w.step = ARRIVE
                    continue
        if w.step == TRY_PWC and node.pwc != NULL:
            w.open -= 1
            w.node = node.pwc
            w.start = token_end(w.subject, w.n, w.start) + 1
            w.step = ARRIVE
            continue
        w.step = GO_UP
        if w.open == 0:
            return NULL
        w.node = node.parent
        w.step = GO_UP if node.kind == PWC else TRY_PWC
        w.start -= 1
        while w.start > 0 and w.subject[w.start - 1] != c'.':
            w.start -= 1
