"""Insert, remove and match subscriptions by subject; see sublist.pxd."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from gnats.core.subjects.rows cimport Rows, copy_node, rows_add, rows_list
from gnats.core.subjects.subject cimport is_token, subjects_collide
from gnats.core.subjects.trie cimport (
    ARRIVE, FWC, GROUP, KIND_GATEWAY, LITERAL, PWC, Walk, bucket_at, bucket_of, clz32, edge_add, edge_find, edge_remove,
    has_empty_token, next_group, node_add_sub, node_drop_sub, node_free, node_interest, node_is_empty, node_links,
    node_new, node_subs, speaks_for_leaf, sub_weight, table_grow, walk_next, weigh,
)
from gnats.includes.atomics cimport add64, load64, loadi64, store32, store64, store64_release
from gnats.includes.prefetch cimport prefetch
from gnats.includes.pthread cimport (
    pthread_rwlock_destroy, pthread_rwlock_rdlock, pthread_rwlock_unlock, pthread_rwlock_wrlock, rwlock_init,
)

cdef extern from * nogil:
    """
    #define GNATS_LAST_PLACE ((uint64_t) 1 << 32)   /* in the order of walk_sink() */
    """
    const uint64_t LAST_PLACE "GNATS_LAST_PLACE"
    uint32_t bswap32 "__builtin_bswap32"(uint32_t x)

cdef enum:
    FEW = 32  # matching nodes, or queue groups, that fit on the stack
    AHEAD = 8  # buckets


cdef Subscription *sub_new(
    void *client, uint8_t kind,
    const char *subject, size_t subject_len,
    const char *queue, size_t queue_len,
    const char *sid, size_t sid_len,
    size_t before=0,
) noexcept nogil:
    cdef Subscription head
    cdef size_t n = <size_t>(head.data - <char *>&head) + subject_len + queue_len + sid_len
    cdef char *block = <char *>malloc(before + max(n, sizeof(Subscription)))
    cdef Subscription *s
    if block == NULL:
        return NULL
    s = <Subscription *>(block + before)
    memset(s, 0, sizeof(Subscription))
    s.client = client
    s.kind = kind
    s.subject_len = <uint32_t>subject_len
    s.queue_len = <uint32_t>queue_len
    s.sid_len = <uint32_t>sid_len
    s.hash = hash_bytes(sid, sid_len)
    memcpy(s.data, subject, subject_len)
    if queue_len:   # `queue` may be NULL without one
        memcpy(s.data + subject_len, queue, queue_len)
    memcpy(s.data + subject_len + queue_len, sid, sid_len)
    return s


cdef tuple sub_row(const Subscription *s):
    return (
        PyBytes_FromStringAndSize(sub_subject(s), s.subject_len),
        PyBytes_FromStringAndSize(sub_queue(s), s.queue_len),
        PyBytes_FromStringAndSize(sub_sid(s), s.sid_len),
        loadi64(&s.nm),
        loadi64(&s.max),
    )


# ---- results ----

cdef struct NodeList:
    Node **nodes
    size_t n
    size_t cap
    bint no_memory
    Node *few[FEW]


cdef void list_init(NodeList *found) noexcept nogil:
    found.nodes = found.few
    found.n = 0
    found.cap = FEW
    found.no_memory = False


cdef void list_add(NodeList *found, Node *node) noexcept nogil:
    cdef Node **more
    if found.n == found.cap:
        more = <Node **>realloc(
            NULL if found.nodes == found.few else found.nodes, 2 * found.cap * sizeof(Node *))
        if more == NULL:
            found.no_memory = True
            return
        if found.nodes == found.few:
            memcpy(more, found.few, sizeof(found.few))
        found.nodes = more
        found.cap *= 2
    found.nodes[found.n] = node
    found.n += 1


cdef void list_free(NodeList *found) noexcept nogil:
    if found.nodes != found.few:
        free(found.nodes)


cdef struct GroupRef:
    Node *group
    size_t first      # index of the first group with this name
    size_t members    # of all groups with this name; set in the first one
    uint32_t slot     # index in the result; set in the first one
    uint32_t hash     # of the name


cdef void append_local(QueueGroup *to, Node *group) noexcept nogil:
    """Append the members that are no links'."""
    cdef uint32_t links = node_links(group), n = group.nsubs - links
    memcpy(to.subs + to.n, node_subs(group) + links, n * sizeof(Subscription *))
    to.n += n
    to.local = to.near = to.own = to.n


# Where the members are that links subscribe for.
cdef enum Distance:
    NEAR              # at another server of the cluster
    BEHIND_LEAVES
    ELSEWHERE         # in another cluster


cdef inline Distance distance_of(const Subscription *s) noexcept nogil:
    if s.kind == KIND_GATEWAY:
        return ELSEWHERE
    return BEHIND_LEAVES if speaks_for_leaf(s) else NEAR


cdef void append_links(QueueGroup *to, Node *group, Distance distance) noexcept nogil:
    cdef Subscription **subs = node_subs(group)
    cdef uint32_t i
    for i in range(node_links(group)):
        if distance_of(subs[i]) == distance:
            to.subs[to.n] = subs[i]
            to.n += 1
    if distance == NEAR:
        to.near = to.own = to.n
    elif distance == BEHIND_LEAVES:
        to.own = to.n


cdef inline bint same_name(const GroupRef *a, const GroupRef *b) noexcept nogil:
    return (a.hash == b.hash and a.group.token_len == b.group.token_len
            and memcmp(a.group.token, b.group.token, a.group.token_len) == 0)


cdef size_t merge_groups(
    const NodeList *found, GroupRef *refs, uint32_t *index, size_t index_mask,
) noexcept nogil:
    """Fill refs with the queue groups of all nodes, each with the first one of its name. Return the number of names.

    index is an open hash table of places in refs plus one, zeroed and larger than there are groups.
    """
    cdef size_t i, k = 0, slot, names = 0
    cdef Node *group
    for i in range(found.n):
        group = found.nodes[i].below.groups
        while group != NULL:
            refs[k].group = group
            refs[k].first = k
            refs[k].members = 0
            refs[k].hash = hash_bytes(group.token, group.token_len)
            slot = refs[k].hash & index_mask
            while index[slot] != 0:
                if same_name(&refs[index[slot] - 1], &refs[k]):
                    refs[k].first = index[slot] - 1
                    break
                slot = (slot + 1) & index_mask
            else:
                index[slot] = <uint32_t>(k + 1)
                names += 1
            refs[refs[k].first].members += group.nsubs
            k += 1
            group = next_group(group)
    return names


cdef MatchResult *result_new(size_t npsubs, size_t nqgroups, size_t members) noexcept nogil:
    cdef size_t n = (
        sizeof(MatchResult) + nqgroups * sizeof(QueueGroup) + (npsubs + members) * sizeof(Subscription *))
    cdef MatchResult *r = <MatchResult *>malloc(n)
    if r != NULL:
        r.nbytes = n
        r.npsubs = 0
        r.nqgroups = 0
        r.visited = 0
        r.qgroups = <QueueGroup *>(r + 1)
        r.psubs = <Subscription **>(r.qgroups + nqgroups)
    return r


cdef void append_all_links(MatchResult *r, const GroupRef *refs, size_t ngroups, Distance distance) noexcept nogil:
    cdef size_t i
    for i in range(ngroups):
        if node_links(refs[i].group):
            append_links(&r.qgroups[refs[refs[i].first].slot], refs[i].group, distance)


cdef MatchResult *result_of(const NodeList *found) noexcept nogil:
    """Return the subscriptions of these nodes, with groups of the same name merged. NULL when out of memory."""
    cdef GroupRef few_refs[FEW]
    cdef uint32_t few_index[2 * FEW]
    cdef GroupRef *refs = few_refs
    cdef uint32_t *index = few_index
    cdef size_t index_size = 2 * FEW
    cdef size_t i, npsubs = 0, ngroups = 0, names = 0, members = 0
    cdef Node *node
    cdef Subscription **free_space
    cdef bint linked = False
    cdef MatchResult *r

    for i in range(found.n):
        npsubs += found.nodes[i].nsubs
        node = found.nodes[i].below.groups
        while node != NULL:
            ngroups += 1
            node = next_group(node)
    if ngroups > 0:
        if ngroups > FEW:
            while index_size < 2 * ngroups:
                index_size *= 2
            refs = <GroupRef *>malloc(ngroups * sizeof(GroupRef) + index_size * sizeof(uint32_t))
            if refs == NULL:
                return NULL
            index = <uint32_t *>(refs + ngroups)
        memset(index, 0, index_size * sizeof(uint32_t))
        names = merge_groups(found, refs, index, index_size - 1)
        for i in range(ngroups):
            members += refs[i].members

    r = result_new(npsubs, names, members)
    if r != NULL:
        for i in range(found.n):
            node = found.nodes[i]
            memcpy(r.psubs + r.npsubs, node_subs(node), node.nsubs * sizeof(Subscription *))
            r.npsubs += node.nsubs
        free_space = r.psubs + npsubs
        for i in range(ngroups):
            if refs[i].first == i:
                refs[i].slot = r.nqgroups
                r.qgroups[r.nqgroups].subs = free_space
                r.qgroups[r.nqgroups].n = 0
                r.nqgroups += 1
                free_space += refs[i].members
            append_local(&r.qgroups[refs[refs[i].first].slot], refs[i].group)
            linked = linked or node_links(refs[i].group) != 0
        if linked:
            append_all_links(r, refs, ngroups, NEAR)
            append_all_links(r, refs, ngroups, BEHIND_LEAVES)
            append_all_links(r, refs, ngroups, ELSEWHERE)
    if refs != few_refs:
        free(refs)
    return r


ctypedef bint (*NodeVisitor)(Node *node, void *arg) noexcept nogil  # False ends the visit


cdef bint visit_wildcards(Node *node, NodeVisitor visit, void *arg) noexcept nogil:
    """Visit the descendants of `node` that only wildcard edges lead to."""
    while True:
        if node.fwc != NULL and not visit(node.fwc, arg):
            return False
        node = node.pwc
        if node == NULL:
            return True
        if not visit(node, arg):
            return False


# ---- the list ----

cdef uint64_t sublists = 0   # Sublists made; under the GIL


@cython.final
cdef class Sublist:
    """Subscriptions by subject. The methods that Python sees are for tests and tools."""

    def __cinit__(self):
        if rwlock_init(&self.lock) != 0:
            raise MemoryError("sublist: no memory for its lock")
        self.root = node_new(NULL, LITERAL, b"", 0)
        if self.root == NULL or not table_grow(&self.edges):
            raise MemoryError("sublist: no memory for its root")
        # A cached result may outlive its sublist: a later sublist at the same address must have other generations.
        global sublists
        sublists += 1
        self.wild_gen = sublists << 40

    def __dealloc__(self):
        cdef uint32_t b
        cdef Node *node
        cdef Node *next
        if self.edges.nbuckets > 0:
            for b in range(self.edges.nbuckets):
                node = bucket_at(&self.edges, b)[0]
                while node != NULL:
                    next = node.chain
                    if node.kind != GROUP:
                        free_wildcards(node)
                    node_free(node)
                    node = next
            free_wildcards(self.root)
        for b in range(32):
            free(self.edges.segments[b])
        free(self.root)
        pthread_rwlock_destroy(&self.lock)

    cdef int insert(self, Subscription *s) noexcept nogil:
        cdef size_t i, start = 0
        cdef int err
        if has_empty_token(s.data, s.subject_len):
            return SL_INVALID_SUBJECT
        for i in range(s.subject_len):
            if s.data[i] == c'.':
                if is_token(s.data, start, i, c'>'):
                    return SL_INVALID_SUBJECT
                start = i + 1
        pthread_rwlock_wrlock(&self.lock)
        err = SL_OK if s.node != NULL else insert_locked(self, s)
        pthread_rwlock_unlock(&self.lock)
        return err

    cdef int remove(self, Subscription *s) noexcept nogil:
        cdef int err
        pthread_rwlock_wrlock(&self.lock)
        err = remove_locked(self, s)
        pthread_rwlock_unlock(&self.lock)
        return err

    cdef void remove_batch(self, Subscription **subs, size_t n) noexcept nogil:
        cdef size_t i
        pthread_rwlock_wrlock(&self.lock)
        for i in range(n):
            remove_locked(self, subs[i])
        pthread_rwlock_unlock(&self.lock)

    cdef void update_remote_qsub(self, Subscription *s, uint32_t qw) noexcept nogil:
        cdef Interest before
        cdef uint32_t old
        pthread_rwlock_wrlock(&self.lock)
        if s.node == NULL:
            store32(&s.qw, qw)
        else:
            note_interest(self, s.node, &before)
            old = sub_weight(s)
            store32(&s.qw, qw)
            if s.node.kind == GROUP:
                weigh(s.node, s, sub_weight(s) - old)
            call_sinks(self, s, s.node, &before)
        pthread_rwlock_unlock(&self.lock)

    cdef MatchResult *match(self, const char *subject, size_t n) noexcept nogil:
        cdef MatchResult *r
        pthread_rwlock_rdlock(&self.lock)
        r = match_locked(self, subject, n)
        pthread_rwlock_unlock(&self.lock)
        return r

    cdef MatchResult *reverse_match(self, const char *subject, size_t n) noexcept nogil:
        cdef MatchResult *r
        pthread_rwlock_rdlock(&self.lock)
        r = reverse_match_locked(self, subject, n)
        pthread_rwlock_unlock(&self.lock)
        return r

    cdef MatchResult *all(self) noexcept nogil:
        cdef MatchResult *r
        pthread_rwlock_rdlock(&self.lock)
        r = result_new(self.num_subs, 0, 0)
        if r != NULL:
            each_node(self, add_all, r)
        pthread_rwlock_unlock(&self.lock)
        return r

    cdef void visit(
        self, const char *subject, size_t n, void (*fn)(void *arg, Subscription **subs, uint32_t n) noexcept nogil,
        void *arg
    ) noexcept nogil:
        cdef Walk walk
        cdef Node *node = walk_next(&walk) if walk_begin(self, &walk, subject, n) else NULL
        while node != NULL:
            if node.nsubs:
                fn(arg, node_subs(node), node.nsubs)
            node = walk_next(&walk)

    cdef bint has_interest(self, const char *subject, size_t n) noexcept nogil:
        cdef Walk walk
        cdef bint found
        pthread_rwlock_rdlock(&self.lock)
        found = walk_begin(self, &walk, subject, n) and walk_next(&walk) != NULL
        pthread_rwlock_unlock(&self.lock)
        return found

    cdef void add_sink(self, InterestSink *sink) noexcept nogil:
        pthread_rwlock_wrlock(&self.lock)
        self.link_sink(sink)
        sink.cursor = 0
        self.walk_sink(sink, <uint32_t> -1)
        pthread_rwlock_unlock(&self.lock)

    cdef void join_sink(self, InterestSink *sink) noexcept nogil:
        pthread_rwlock_wrlock(&self.lock)
        self.link_sink(sink)
        sink.cursor = 0
        pthread_rwlock_unlock(&self.lock)

    cdef bint walk_sink(self, InterestSink *sink, uint32_t most) noexcept nogil:
        cdef uint32_t visited = 0
        if sink.cursor == 0:
            sink.cursor = 1
            visit_wildcards(self.root, call_for_present, sink)
        while sink.cursor <= LAST_PLACE and (visited < most or most == <uint32_t> -1):
            visited += walk_bucket(self, sink)
        if sink.cursor > LAST_PLACE:
            sink.cursor = SINK_WALKED
        return sink.cursor == SINK_WALKED

    cdef void remove_sink(self, InterestSink *sink) noexcept nogil:
        pthread_rwlock_wrlock(&self.lock)
        self.unlink_sink(sink)
        pthread_rwlock_unlock(&self.lock)

    cdef void link_sink(self, InterestSink *sink) noexcept nogil:
        sink.cursor = SINK_WALKED
        sink.next = self.sinks
        self.sinks = sink

    cdef void unlink_sink(self, InterestSink *sink) noexcept nogil:
        cdef InterestSink **at = &self.sinks
        while at[0] != NULL and at[0] != sink:
            at = &at[0].next
        if at[0] != NULL:
            at[0] = sink.next

    cdef uint32_t count_of(self, const char *subject, size_t n, const char *queue, size_t qn) noexcept nogil:
        cdef Node *node = self.root
        cdef size_t start = 0, end
        while node != NULL and start <= n:
            end = token_end(subject, n, start)
            node = edge_find(&self.edges, node, LITERAL, subject + start, end - start)
            start = end + 1
        if node != NULL and qn:
            node = edge_find(&self.edges, node, GROUP, queue, qn)
        return node.nsubs if node != NULL else 0

    cdef void num_interest(self, const char *subject, size_t n, uint32_t *np, uint32_t *nq) noexcept nogil:
        cdef Walk walk
        cdef Node *node
        cdef Node *group
        np[0] = 0
        nq[0] = 0
        pthread_rwlock_rdlock(&self.lock)
        node = walk_next(&walk) if walk_begin(self, &walk, subject, n) else NULL
        while node != NULL:
            np[0] += node.nsubs
            group = node.below.groups
            while group != NULL:
                nq[0] += group.nsubs
                group = next_group(group)
            node = walk_next(&walk)
        pthread_rwlock_unlock(&self.lock)

    def subscribe(
        self, bytes subject not None, bytes queue not None=b"", bytes sid not None=b"",
        uint8_t kind=0, uint32_t weight=0,
    ) -> Handle:
        """Insert a subscription of a connection of this kind; the handle owns it.

        Raises ValueError for a subject that is not valid, MemoryError.
        """
        return Handle(self, subject, queue, sid, kind, weight)

    def unsubscribe(self, Handle handle not None) -> bool:
        """Remove a subscription. Return False when it was not in this sublist."""
        cdef int err
        with nogil:
            err = self.remove(handle.sub)
        return err == SL_OK

    def unsubscribe_all(self, handles) -> None:
        """Remove several under one lock, skipping those that are not in this sublist."""
        cdef list held = list(handles)  # keeps the subscriptions alive that are borrowed below
        cdef Handle handle
        cdef size_t n = 0
        cdef Subscription **subs = <Subscription **>malloc((len(held) + 1) * sizeof(Subscription *))
        if subs == NULL:
            raise MemoryError
        try:
            for handle in held:
                if handle is None:
                    raise TypeError("unsubscribe_all: not a Handle: None")
                subs[n] = handle.sub
                n += 1
            with nogil:
                self.remove_batch(subs, n)
        finally:
            free(subs)

    def update_weight(self, Handle handle not None, uint32_t weight) -> None:
        """Set the number of members that a remote queue subscription stands for."""
        with nogil:
            self.update_remote_qsub(handle.sub, weight)

    def lookup(self, bytes subject not None) -> tuple[list[bytes], list[list[bytes]]]:
        """Return the sids that match a subject: those in no queue group, and a list for each group."""
        return look_up(self, subject, match_locked)

    def reverse_lookup(self, bytes subject not None) -> tuple[list[bytes], list[list[bytes]]]:
        """As lookup, for subscriptions that have a literal subject in common with `subject`."""
        return look_up(self, subject, reverse_match_locked)

    def interest(self, bytes subject not None) -> tuple[int, int]:
        """Count the matching subscriptions: (outside of queue groups, in queue groups)."""
        cdef const char *p = PyBytes_AS_STRING(subject)
        cdef size_t n = PyBytes_GET_SIZE(subject)
        cdef uint32_t np, nq
        with nogil:
            self.num_interest(p, n, &np, &nq)
        return np, nq

    def interested(self, bytes subject not None) -> bool:
        """Return whether a subscription matches."""
        cdef const char *p = PyBytes_AS_STRING(subject)
        cdef size_t n = PyBytes_GET_SIZE(subject)
        cdef bint found
        with nogil:
            found = self.has_interest(p, n)
        return found

    def generation(self, bytes subject not None) -> int:
        """Return the subject's generation: as long as it stays the same, so does the result of a lookup."""
        return sl_generation(self, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))

    def count(self) -> int:
        """Return the number of subscriptions."""
        return load64(&self.num_subs)

    def stats(self) -> dict[str, int]:
        """Return subscriptions and trie nodes now; inserts, removes, matches and their results since the start."""
        return {
            "num_subscriptions": load64(&self.num_subs),
            "num_inserts": load64(&self.num_inserts),
            "num_removes": load64(&self.num_removes),
            "num_matches": load64(&self.num_matches),
            "num_nodes": load64(&self.num_nodes),
            "num_results": load64(&self.num_results),
            "max_fanout": load64(&self.max_fanout),
        }

    def subs(self) -> list[tuple[bytes, bytes, bytes]]:
        """Return (subject, queue group or b"", sid) of every subscription, in no order."""
        cdef Rows rows
        memset(&rows, 0, sizeof(Rows))
        try:
            with nogil:
                pthread_rwlock_rdlock(&self.lock)
                each_node(self, copy_node, &rows)
                pthread_rwlock_unlock(&self.lock)
            return [(subject, queue, sid) for _, subject, queue, sid in rows_list(&rows)]
        finally:
            free(rows.data)


# ---- under the lock of the Sublist ----

cdef void free_wildcards(Node *node) noexcept nogil:
    cdef Node *next = node.pwc
    if node.fwc != NULL:
        node_free(node.fwc)
    while next != NULL:
        node = next
        next = node.pwc
        if node.fwc != NULL:
            node_free(node.fwc)
        node_free(node)


cdef void bump(Sublist sl, const Subscription *s) noexcept nogil:
    """Note that results of match may have changed. Call it under the write lock, after the trie has changed."""
    cdef size_t end = token_end(s.data, s.subject_len, 0)
    cdef uint64_t *generation = &sl.gens[sl_generation_slot(s.data, end)]
    if is_token(s.data, 0, end, c'*') or is_token(s.data, 0, end, c'>'):
        generation = &sl.wild_gen
    store64_release(generation, generation[0] + 1)


cdef inline Node *split_soon(EdgeTable *t, uint32_t n) noexcept nogil:
    """Return the first node of the n-th bucket that edge_add() splits some edges later, as the table grows."""
    return bucket_of(t, t.nbuckets + 2 * AHEAD + n & t.mask >> 1)[0]


cdef Node *child_of(Sublist sl, Node *node, uint8_t kind, const char *token, size_t n) noexcept nogil:
    """Return the child of this kind and token, making it if need be; NULL when out of memory."""
    cdef Node *child
    cdef Node *ahead
    cdef uint32_t i
    if kind == PWC:
        child = node.pwc
    elif kind == FWC:
        child = node.fwc
    else:
        child = edge_find(&sl.edges, node, kind, token, n)
    if child != NULL:
        return child
    child = node_new(node, kind, token, n)
    if child == NULL:
        return NULL
    if kind == PWC:
        node.pwc = child
    elif kind == FWC:
        node.fwc = child
    else:
        for i in range(2):   # an edge is given two buckets
            ahead = split_soon(&sl.edges, i)
            if ahead != NULL:
                prefetch(&ahead.hash)
        edge_add(&sl.edges, child)
        if kind == LITERAL:
            node.nchildren += 1
        else:
            child.pwc = node.below.groups
            if child.pwc != NULL:
                child.pwc.fwc = child
            node.below.groups = child
    store64(&sl.num_nodes, sl.num_nodes + 1)
    return child


cdef void prune(Sublist sl, Node *node) noexcept nogil:
    """Free a node and its ancestors up to the first that is not empty."""
    cdef Node *parent
    while node != sl.root and node_is_empty(node):
        parent = node.parent
        if node.kind == PWC:
            parent.pwc = NULL
        elif node.kind == FWC:
            parent.fwc = NULL
        else:
            edge_remove(&sl.edges, node)
            if node.kind == LITERAL:
                parent.nchildren -= 1
            else:
                if node.pwc != NULL:
                    node.pwc.fwc = node.fwc
                if node.fwc != NULL:
                    node.fwc.pwc = node.pwc
                else:
                    parent.below.groups = node.pwc
        node_free(node)
        store64(&sl.num_nodes, sl.num_nodes - 1)
        node = parent


cdef inline void note_interest(Sublist sl, const Node *node, Interest *interest) noexcept nogil:
    """Read the interest in a node's subject and group, if there are sinks."""
    if sl.sinks != NULL:
        node_interest(node, interest)


cdef inline void call_sinks(Sublist sl, const Subscription *s, const Node *node, const Interest *before) noexcept nogil:
    """Call the sinks, if any, with the interest before and after a change of s. note_interest() gave `before`."""
    cdef InterestSink *sink = sl.sinks
    cdef Interest now
    if sink == NULL:
        return
    node_interest(node, &now)
    while sink != NULL:
        if sink.cursor == SINK_WALKED or place_of(node) < sink.cursor:   # else walk_sink() finds it
            sink.changed(sink, s, node, before, &now)
        sink = sink.next


cdef bint call_for_present(Node *node, void *sink) noexcept nogil:
    """Call one sink for a node's subscriptions as if they had come now."""
    cdef Interest none, now
    if node.nsubs:
        memset(&none, 0, sizeof(none))
        node_interest(node, &now)
        (<InterestSink *>sink).changed(<InterestSink *>sink, node_subs(node)[0], node, &none, &now)
    return True


# -- the order of walk_sink() --
# A bucket of the table of edges has the nodes whose hashes end with the same bits. In the order of hashes whose bits
# are reversed, these are a range; a bucket that is split falls into two ranges, and two that are merged become one (as
# for Redis' SCAN). So a walk in that order meets each node once, however the table grows and shrinks meanwhile.

cdef inline uint32_t reversed_bits(uint32_t x) noexcept nogil:
    x = (x >> 1 & <uint32_t> 0x55555555) | (x & <uint32_t> 0x55555555) << 1
    x = (x >> 2 & <uint32_t> 0x33333333) | (x & <uint32_t> 0x33333333) << 2
    x = (x >> 4 & <uint32_t> 0x0F0F0F0F) | (x & <uint32_t> 0x0F0F0F0F) << 4
    return bswap32(x)


cdef inline uint64_t place_of(const Node *node) noexcept nogil:
    """Return a node's place in the order; that of a wildcard is the place of the node with an edge above it.

    It stays the same as long as the node is there.
    """
    while node.kind == PWC or node.kind == FWC:
        node = node.parent
    return <uint64_t> reversed_bits(node.hash) + 1 if node.parent != NULL else 0


cdef inline uint64_t bucket_width(const EdgeTable *t, uint32_t b) noexcept nogil:
    """Return how many reversed hashes a bucket covers."""
    cdef uint32_t half = (t.mask >> 1) + 1
    if t.mask == 0:
        return <uint64_t> 1 << 32
    if b >= half or b + half < t.nbuckets:
        return <uint64_t> 1 << clz32(t.mask)
    return <uint64_t> 2 << clz32(t.mask)   # not split yet


cdef inline Node **bucket_behind(EdgeTable *t, uint64_t from_place, uint64_t n, uint64_t width) noexcept nogil:
    """Return about the n-th bucket behind a reversed hash."""
    return bucket_of(t, reversed_bits(<uint32_t> (from_place + n * width)))


cdef uint32_t walk_bucket(Sublist sl, InterestSink *sink) noexcept nogil:
    """Call a sink for the nodes in the bucket at its cursor, which moves on. Return how many were visited."""
    cdef EdgeTable *t = &sl.edges
    cdef uint64_t first = sink.cursor - 1
    cdef uint32_t hash = reversed_bits(<uint32_t> first)
    cdef uint32_t b = hash & t.mask
    cdef uint32_t visited = 1
    cdef uint64_t width
    cdef Node *node
    if b >= t.nbuckets:
        b &= t.mask >> 1
    width = bucket_width(t, b)
    # What a visit reads comes from memory while buckets before it are visited: first a bucket, then its first node,
    # then the subscription there.
    prefetch(bucket_behind(t, first, 3 * AHEAD, width))
    node = bucket_behind(t, first, 2 * AHEAD, width)[0]
    if node != NULL:
        prefetch(node)
        prefetch(&node.kind)
    node = bucket_behind(t, first, AHEAD, width)[0]
    if node != NULL and node.nsubs == 1:
        prefetch(node.subs.one)
        prefetch(&node.subs.one.kind)
    node = bucket_at(t, b)[0]
    # Before any call: the bucket's nodes are all told of, and none of them changes meanwhile.
    sink.cursor = (first & ~(width - 1)) + width + 1
    while node != NULL:
        if reversed_bits(node.hash) >= first:   # else it was visited: its bucket has been merged since
            call_for_present(node, sink)
            visited += 1
            if node.kind != GROUP:
                visit_wildcards(node, call_for_present, sink)
        node = node.chain
    return visited


cdef int insert_locked(Sublist sl, Subscription *s) noexcept nogil:
    cdef Node *node = sl.root
    cdef Node *child
    cdef Interest before
    cdef size_t start = 0, end
    cdef uint8_t kind
    while start <= s.subject_len:
        end = token_end(s.data, s.subject_len, start)
        kind = LITERAL
        if is_token(s.data, start, end, c'*'):
            kind = PWC
        elif is_token(s.data, start, end, c'>'):
            kind = FWC
        child = child_of(sl, node, kind, s.data + start, end - start)
        if child == NULL:
            prune(sl, node)
            return SL_NO_MEMORY
        node = child
        start = end + 1
    if s.queue_len > 0:
        child = child_of(sl, node, GROUP, sub_queue(s), s.queue_len)
        if child == NULL:
            prune(sl, node)
            return SL_NO_MEMORY
        node = child
    note_interest(sl, node, &before)
    if not node_add_sub(node, s):
        prune(sl, node)
        return SL_NO_MEMORY
    store64(&sl.num_subs, sl.num_subs + 1)
    store64(&sl.num_inserts, sl.num_inserts + 1)
    bump(sl, s)
    call_sinks(sl, s, node, &before)
    return SL_OK


cdef int remove_locked(Sublist sl, Subscription *s) noexcept nogil:
    cdef Node *node = s.node
    cdef Node *top = node
    cdef Interest before
    while top != NULL and top != sl.root:
        top = top.parent
    if top == NULL:
        return SL_NOT_FOUND
    note_interest(sl, node, &before)
    node_drop_sub(node, s)
    store64(&sl.num_subs, sl.num_subs - 1)
    store64(&sl.num_removes, sl.num_removes + 1)
    call_sinks(sl, s, node, &before)
    prune(sl, node)
    bump(sl, s)
    return SL_OK


cdef bint walk_begin(Sublist sl, Walk *w, const char *subject, size_t n) noexcept nogil:
    """Begin a walk. False for a subject that cannot match."""
    w.edges = &sl.edges
    w.subject = subject
    w.n = n
    w.node = sl.root
    w.start = 0
    w.open = 0
    w.visited = 0
    w.step = ARRIVE
    return not has_empty_token(subject, n)


cdef MatchResult *match_locked(Sublist sl, const char *subject, size_t n) noexcept nogil:
    cdef Walk walk
    cdef NodeList found
    cdef Node *node
    cdef MatchResult *r = NULL
    add64(&sl.num_matches, 1)
    list_init(&found)
    node = walk_next(&walk) if walk_begin(sl, &walk, subject, n) else NULL
    while node != NULL:
        list_add(&found, node)
        node = walk_next(&walk)
    if not found.no_memory:
        r = result_of(&found)
    if r != NULL:
        r.visited = walk.visited
        add64(&sl.num_results, r.npsubs + r.nqgroups)
        if r.npsubs + r.nqgroups > load64(&sl.max_fanout):
            store64(&sl.max_fanout, r.npsubs + r.nqgroups)
    list_free(&found)
    return r


cdef bint each_node(Sublist sl, NodeVisitor visit, void *arg) noexcept nogil:
    """Visit every node but the root, queue groups, too. Return False when a visit has."""
    cdef uint32_t b
    cdef Node *node
    if not visit_wildcards(sl.root, visit, arg):
        return False
    for b in range(sl.edges.nbuckets):
        # What a visit reads comes from memory while buckets before it are visited: first a node, then its subscription.
        if b + 2 * AHEAD < sl.edges.nbuckets:
            node = bucket_at(&sl.edges, b + 2 * AHEAD)[0]
            if node != NULL:
                prefetch(node)
                prefetch(&node.kind)
            node = bucket_at(&sl.edges, b + AHEAD)[0]
            if node != NULL and node.nsubs == 1:
                prefetch(node.subs.one)
                prefetch(&node.subs.one.kind)
        node = bucket_at(&sl.edges, b)[0]
        while node != NULL:
            if not visit(node, arg) or (node.kind != GROUP and not visit_wildcards(node, visit, arg)):
                return False
            node = node.chain
    return True


cdef bint add_all(Node *node, void *arg) noexcept nogil:
    cdef MatchResult *r = <MatchResult *>arg
    memcpy(r.psubs + r.npsubs, node_subs(node), node.nsubs * sizeof(Subscription *))
    r.npsubs += node.nsubs
    return True


cdef struct Collision:
    const char *subject
    size_t n
    NodeList found


cdef bint add_if_collides(Node *node, void *arg) noexcept nogil:
    cdef Collision *c = <Collision *>arg
    cdef Subscription *s
    if node.kind == GROUP or (node.nsubs == 0 and node.below.groups == NULL):
        return True  # handled with the node of its subject
    s = node_subs(node if node.nsubs > 0 else node.below.groups)[0]
    if subjects_collide(s.data, s.subject_len, c.subject, c.n):
        list_add(&c.found, node)
    return not c.found.no_memory


cdef MatchResult *reverse_match_locked(Sublist sl, const char *subject, size_t n) noexcept nogil:
    cdef Collision c
    cdef MatchResult *r = NULL
    c.subject = subject
    c.n = n
    list_init(&c.found)
    if each_node(sl, add_if_collides, &c):
        r = result_of(&c.found)
    list_free(&c.found)
    return r


# ---- for Python ----

ctypedef MatchResult *(*Matcher)(Sublist sl, const char *subject, size_t n) noexcept nogil


cdef tuple look_up(Sublist sl, bytes subject, Matcher matcher):
    cdef const char *p = PyBytes_AS_STRING(subject)
    cdef size_t n = PyBytes_GET_SIZE(subject)
    cdef MatchResult *r
    cdef Rows rows
    cdef uint32_t i, j
    cdef list plain = [], groups = []
    memset(&rows, 0, sizeof(Rows))
    try:
        with nogil:
            pthread_rwlock_rdlock(&sl.lock)
            r = matcher(sl, p, n)
            if r == NULL:
                rows.no_memory = True
            else:
                for i in range(r.npsubs):
                    rows_add(&rows, r.psubs[i], -1)
                for i in range(r.nqgroups):
                    for j in range(r.qgroups[i].n):
                        rows_add(&rows, r.qgroups[i].subs[j], i)
            pthread_rwlock_unlock(&sl.lock)
            free(r)
        for group, _, _, sid in rows_list(&rows):
            if group < 0:
                plain.append(sid)
            else:
                if group == len(groups):
                    groups.append([])
                (<list>groups[group]).append(sid)
        return plain, groups
    finally:
        free(rows.data)


@cython.final
@cython.no_gc  # its sublist refers to nothing, so there is no cycle; the handle needs the sublist to the end
cdef class Handle:
    """Owns a subscription; removes it from the sublist when collected."""
    cdef Subscription *sub
    cdef Sublist sublist

    def __cinit__(
        self, Sublist sublist not None, bytes subject not None, bytes queue not None, bytes sid not None,
        uint8_t kind, uint32_t weight,
    ):
        cdef int err
        self.sublist = sublist
        self.sub = sub_new(
            NULL, kind,
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject),
            PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue),
            PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid))
        if self.sub == NULL:
            raise MemoryError
        self.sub.qw = weight
        with nogil:
            err = sublist.insert(self.sub)
        if err == SL_INVALID_SUBJECT:
            raise ValueError(f"subscribe: invalid subject {subject!r}: no empty tokens, `>` only as the last")
        if err != SL_OK:
            raise MemoryError

    def __dealloc__(self):
        if self.sub != NULL:
            self.sublist.remove(self.sub)
            free(self.sub)

    @property
    def subject(self) -> bytes:
        return PyBytes_FromStringAndSize(sub_subject(self.sub), self.sub.subject_len)

    @property
    def queue(self) -> bytes:
        return PyBytes_FromStringAndSize(sub_queue(self.sub), self.sub.queue_len)

    @property
    def sid(self) -> bytes:
        return PyBytes_FromStringAndSize(sub_sid(self.sub), self.sub.sid_len)
