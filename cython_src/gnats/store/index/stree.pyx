"""The subject tree; see stree.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int16_t, uint8_t, uint16_t, uint32_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcpy, memmove, memset

from gnats.core.subjects.subject cimport same_bytes
from gnats.store.index.filterorder cimport begins_token, find_stars, has_full, narrow, rank_at, rank_of

cdef enum Kind:
    NODE_2 = 0
    NODE_5 = 1
    NODE_10 = 2
    NODE_18 = 3
    NODE_48 = 4
    NODE_256 = 5

cdef enum:
    KEYS_AT = 6              # offset of the sorted keys of nodes up to NODE_18
    INDEX_AT = 8             # offset in NODE_48 of the slot of each key's child; 0: none, slot 0 is END_KEY's
    FIRST_CHUNK = 512
    LARGEST_CHUNK = 65536
    LARGEST_CLASS = (ARENA_CLASSES - 1) * 8
    END_KEY = 256            # key of the subject that ends at a node
    ANY_KEY = 257
    NO_KEY = 258
    FULL = 0xffffffff        # STreeState.at of a filter that matches whatever follows


cdef struct Node:
    uint8_t kind
    uint8_t has_end          # the first child is the leaf of the subject that ends here
    uint16_t n               # children
    uint16_t prefix_n        # length of the prefix that all subjects below share
    # keys, children and prefix follow, at offsets that depend on the kind


# By kind: the most children, and the offsets of children and prefix.
cdef uint16_t[6] CAPACITY = [2, 5, 10, 18, 49, 257]
cdef uint16_t[6] CHILDREN_AT = [8, 16, 16, 24, 264, 8]
cdef uint16_t[6] PREFIX_AT = [24, 56, 96, 168, 656, 2064]
# By kind: with so few children the node becomes one of the next smaller kind.
cdef uint16_t[6] SHRINKS_AT = [0, 2, 4, 8, 14, 40]


# ---- memory ----

cdef void *arena_large(Arena *a, size_t size) noexcept nogil:
    cdef ArenaLarge *block = <ArenaLarge *> malloc(sizeof(ArenaLarge) + size)
    if block == NULL:
        return NULL
    block.prev = NULL
    block.next = a.large
    if a.large != NULL:
        a.large.prev = block
    a.large = block
    a.bytes += size
    return block + 1


cdef bint arena_grow(Arena *a, size_t size) noexcept nogil:
    cdef size_t room = FIRST_CHUNK, left = <size_t> (a.end - a.at)
    cdef ArenaChunk *chunk
    if a.chunks != NULL:
        room = min(a.chunks.size * 2, <size_t> LARGEST_CHUNK)
    chunk = <ArenaChunk *> malloc(room)
    if chunk == NULL:
        return False
    if left >= 8:
        # keep the rest for later: it is smaller than `size`, so there is a class for it
        (<void **> a.at)[0] = a.free[left >> 3]
        a.free[left >> 3] = a.at
    chunk.size = room
    chunk.next = a.chunks
    a.chunks = chunk
    a.at = <char *> (chunk + 1)
    a.end = <char *> chunk + room
    a.bytes += room
    return True


cdef void *arena_alloc(Arena *a, size_t size) noexcept nogil:
    cdef void *block
    size = (size + 7) & ~<size_t> 7
    if size > LARGEST_CLASS:
        return arena_large(a, size)
    block = a.free[size >> 3]
    if block != NULL:
        a.free[size >> 3] = (<void **> block)[0]
        return block
    if <size_t> (a.end - a.at) < size and not arena_grow(a, size):
        return NULL
    block = a.at
    a.at += size
    return block


cdef void arena_free(Arena *a, void *block, size_t size) noexcept nogil:
    cdef ArenaLarge *large
    size = (size + 7) & ~<size_t> 7
    if size <= LARGEST_CLASS:
        (<void **> block)[0] = a.free[size >> 3]
        a.free[size >> 3] = block
        return
    large = <ArenaLarge *> block - 1
    if large.prev != NULL:
        large.prev.next = large.next
    else:
        a.large = large.next
    if large.next != NULL:
        large.next.prev = large.prev
    a.bytes -= size
    free(large)


cdef void arena_drop(Arena *a) noexcept nogil:
    cdef ArenaChunk *chunk
    cdef ArenaLarge *large
    while a.chunks != NULL:
        chunk = a.chunks
        a.chunks = chunk.next
        free(chunk)
    while a.large != NULL:
        large = a.large
        a.large = large.next
        free(large)
    memset(a, 0, sizeof(Arena))


# ---- leaves: value, length of the subject (16 bits), subject ----

cdef inline bint is_leaf(void *p) noexcept nogil:
    return <uintptr_t> p & 1


cdef inline char *leaf_of(void *p) noexcept nogil:
    return <char *> (<uintptr_t> p & ~<uintptr_t> 1)


cdef inline size_t leaf_n(const STree *t, const char *leaf) noexcept nogil:
    return (<const uint16_t *> (leaf + t.value_size))[0]


cdef inline const char *leaf_subject(const STree *t, const char *leaf) noexcept nogil:
    return leaf + t.value_size + 2


cdef inline bint leaf_is(const STree *t, const char *leaf, const char *subject, size_t n) noexcept nogil:
    return leaf_n(t, leaf) == n and same_bytes(leaf_subject(t, leaf), subject, n)


cdef void *new_leaf(STree *t, const char *subject, size_t n) noexcept nogil:
    cdef char *leaf = <char *> arena_alloc(&t.arena, t.value_size + 2 + n)
    if leaf == NULL:
        return NULL
    memset(leaf, 0, t.value_size)
    (<uint16_t *> (leaf + t.value_size))[0] = <uint16_t> n
    memcpy(leaf + t.value_size + 2, subject, n)
    return <void *> (<uintptr_t> leaf | 1)


cdef inline void free_leaf(STree *t, void *p) noexcept nogil:
    cdef char *leaf = leaf_of(p)
    arena_free(&t.arena, leaf, t.value_size + 2 + leaf_n(t, leaf))


# ---- nodes ----

cdef inline uint8_t *keys_of(const Node *node) noexcept nogil:
    return <uint8_t *> node + KEYS_AT


cdef inline uint8_t *index_of(const Node *node) noexcept nogil:
    return <uint8_t *> node + INDEX_AT


cdef inline void **children_of(const Node *node) noexcept nogil:
    return <void **> (<char *> node + CHILDREN_AT[node.kind])


cdef inline char *prefix_of(const Node *node) noexcept nogil:
    return <char *> node + PREFIX_AT[node.kind]


cdef Node *new_node(STree *t, uint8_t kind, const char *prefix, size_t prefix_n) noexcept nogil:
    cdef Node *node = <Node *> arena_alloc(&t.arena, PREFIX_AT[kind] + prefix_n)
    if node == NULL:
        return NULL
    memset(node, 0, PREFIX_AT[kind] if kind >= NODE_48 else sizeof(Node))
    node.kind = kind
    node.prefix_n = <uint16_t> prefix_n
    memcpy(prefix_of(node), prefix, prefix_n)
    return node


cdef inline void free_node(STree *t, Node *node) noexcept nogil:
    arena_free(&t.arena, node, PREFIX_AT[node.kind] + node.prefix_n)


cdef void **find_child(const Node *node, int key) noexcept nogil:
    """Return the address of the link to the child of a key (or END_KEY); NULL: there is none."""
    cdef void **children = children_of(node)
    cdef const uint8_t *keys
    cdef int i
    if key == END_KEY:
        return children if node.has_end else NULL
    if node.kind <= NODE_18:
        keys = keys_of(node)
        for i in range(node.has_end, node.n):
            if keys[i] == key:
                return children + i
        return NULL
    if node.kind == NODE_48:
        i = index_of(node)[key]
        return children + i if i else NULL
    return children + 1 + key if children[1 + key] != NULL else NULL


cdef bint next_child(const Node *node, uint32_t *pos, void **child, int *key) noexcept nogil:
    """Get the child at or after *pos in the order of keys, END_KEY first, and advance *pos. False: none is left."""
    cdef void **children = children_of(node)
    cdef uint32_t i = pos[0]
    if node.kind <= NODE_18:
        if i >= node.n:
            return False
        child[0] = children[i]
        key[0] = <int> END_KEY if i == 0 and node.has_end else <int> keys_of(node)[i]
        pos[0] = i + 1
        return True
    if i == 0:
        i = 1
        if node.has_end:
            pos[0] = 1
            child[0] = children[0]
            key[0] = END_KEY
            return True
    while i <= 256:
        if node.kind == NODE_256:
            child[0] = children[i]
        else:
            child[0] = children[index_of(node)[i - 1]] if index_of(node)[i - 1] else NULL
        if child[0] != NULL:
            key[0] = <int> i - 1
            pos[0] = i + 1
            return True
        i += 1
    pos[0] = i
    return False


cdef void add_child(Node *node, int key, void *child) noexcept nogil:
    """Add a child. The node has room and no child of this key."""
    cdef void **children = children_of(node)
    cdef uint8_t *keys
    cdef uint16_t i = node.n
    if node.kind <= NODE_18:
        keys = keys_of(node)
        if key == END_KEY:
            i = 0
        else:
            while i > node.has_end and keys[i - 1] > key:
                i -= 1
        memmove(children + i + 1, children + i, (node.n - i) * sizeof(void *))
        memmove(keys + i + 1, keys + i, node.n - i)
        children[i] = child
        keys[i] = 0 if key == END_KEY else <uint8_t> key
    elif key == END_KEY:
        children[0] = child
    elif node.kind == NODE_48:
        # the children of keys have slots 1 to their number, without gaps
        i = node.n - node.has_end + 1
        children[i] = child
        index_of(node)[key] = <uint8_t> i
    else:
        children[1 + key] = child
    node.n += 1
    if key == END_KEY:
        node.has_end = 1


cdef void drop_child(Node *node, int key) noexcept nogil:
    cdef void **children = children_of(node)
    cdef uint8_t *keys
    cdef uint16_t i, last
    if node.kind <= NODE_18:
        keys = keys_of(node)
        i = 0 if key == END_KEY else <uint16_t> (find_child(node, key) - children)
        memmove(children + i, children + i + 1, (node.n - i - 1) * sizeof(void *))
        memmove(keys + i, keys + i + 1, node.n - i - 1)
    elif key == END_KEY:
        children[0] = NULL
    elif node.kind == NODE_48:
        keys = index_of(node)
        i = keys[key]
        last = node.n - node.has_end
        keys[key] = 0
        if i != last:
            # move the child of the last slot here
            children[i] = children[last]
            (<uint8_t *> memchr(keys, last, 256))[0] = <uint8_t> i
        children[last] = NULL
    else:
        children[1 + key] = NULL
    node.n -= 1
    if key == END_KEY:
        node.has_end = 0


cdef Node *rebuild(STree *t, Node *node, uint8_t kind, const char *prefix, size_t prefix_n) noexcept nogil:
    """Replace a node by one of another kind or prefix; the prefix may be in the old node. NULL: no memory."""
    cdef Node *fresh = new_node(t, kind, prefix, prefix_n)
    cdef uint32_t pos = 0
    cdef void *child
    cdef int key
    if fresh == NULL:
        return NULL
    while next_child(node, &pos, &child, &key):
        add_child(fresh, key, child)
    free_node(t, node)
    return fresh


cdef inline size_t common_n(const char *a, size_t an, const char *b, size_t bn) noexcept nogil:
    cdef size_t i = 0, n = min(an, bn)
    while i < n and a[i] == b[i]:
        i += 1
    return i


cdef inline int key_at(const char *subject, size_t n, size_t depth) noexcept nogil:
    return <int> END_KEY if depth == n else <int> <uint8_t> subject[depth]


# ---- the tree ----

cdef void stree_init(STree *t, size_t value_size) noexcept nogil:
    memset(t, 0, sizeof(STree))
    t.value_size = value_size


cdef void stree_clear(STree *t) noexcept nogil:
    arena_drop(&t.arena)
    stree_init(t, t.value_size)


cdef void *stree_find(const STree *t, const char *subject, size_t n) noexcept nogil:
    cdef void *p = t.root
    cdef void **link
    cdef Node *node
    cdef size_t depth = 0
    if p == NULL:
        return NULL
    while not is_leaf(p):
        # no prefix is compared on the way down: the leaf has the whole subject
        node = <Node *> p
        depth += node.prefix_n
        if depth > n:
            return NULL
        link = find_child(node, key_at(subject, n, depth))
        if link == NULL:
            return NULL
        p = link[0]
        depth += 1
    return leaf_of(p) if leaf_is(t, leaf_of(p), subject, n) else NULL


cdef bint split(STree *t, void **link, const char *path, size_t path_n, size_t depth, size_t common,
                void *below, const char *subject, size_t n, void *leaf) noexcept nogil:
    """Insert a node above `below` and add a leaf to it. False: no memory.

    The node's prefix is `common` bytes of the subject from `depth` on; `path` is the rest of the way to `below`.
    """
    cdef Node *node = new_node(t, NODE_2, subject + depth, common)
    if node == NULL:
        return False
    add_child(node, key_at(path, path_n, common), below)
    add_child(node, key_at(subject, n, depth + common), leaf)
    link[0] = node
    return True


cdef inline bint is_full(const Node *node, int key) noexcept nogil:
    if node.kind == NODE_48:
        return key != END_KEY and node.n - node.has_end == 48
    return node.n == CAPACITY[node.kind]


cdef bint put(STree *t, void **link, size_t depth, const char *subject, size_t n, void *leaf) noexcept nogil:
    """Link a new leaf below `link`: at a leaf, or at a node that has no child for its subject. False: no memory."""
    cdef const char *other
    cdef size_t other_n, common
    cdef Node *node
    cdef Node *parent
    cdef int key
    if link[0] == NULL:
        link[0] = leaf
        return True
    if is_leaf(link[0]):
        other = leaf_subject(t, leaf_of(link[0])) + depth
        other_n = leaf_n(t, leaf_of(link[0])) - depth
        common = common_n(other, other_n, subject + depth, n - depth)
        parent = new_node(t, NODE_2, subject + depth, common)
        if parent == NULL:
            return False
        add_child(parent, key_at(other, other_n, common), link[0])
    else:
        node = <Node *> link[0]
        common = common_n(prefix_of(node), node.prefix_n, subject + depth, n - depth)
        if common == node.prefix_n:
            key = key_at(subject, n, depth + common)
            if is_full(node, key):
                node = rebuild(t, node, node.kind + 1, prefix_of(node), node.prefix_n)
                if node == NULL:
                    return False
                link[0] = node
            add_child(node, key, leaf)
            return True
        parent = new_node(t, NODE_2, subject + depth, common)
        if parent == NULL:
            return False
        key = <uint8_t> prefix_of(node)[common]
        node = rebuild(t, node, node.kind, prefix_of(node) + common + 1, node.prefix_n - common - 1)
        if node == NULL:
            free_node(t, parent)
            return False
        add_child(parent, key, node)
    add_child(parent, key_at(subject, n, depth + common), leaf)
    link[0] = parent
    return True


cdef void *stree_insert(STree *t, const char *subject, size_t n, bint *was_there) noexcept nogil:
    cdef void **link = &t.root
    cdef void **child
    cdef void *leaf
    cdef Node *node
    cdef size_t depth = 0
    was_there[0] = False
    if n == 0 or n > MAX_TREE_SUBJECT:
        return NULL
    while link[0] != NULL and not is_leaf(link[0]):
        node = <Node *> link[0]
        if node.prefix_n > n - depth or not same_bytes(prefix_of(node), subject + depth, node.prefix_n):
            break
        child = find_child(node, key_at(subject, n, depth + node.prefix_n))
        if child == NULL:
            break
        link = child
        depth += node.prefix_n
        if depth == n:
            # the child of END_KEY can be no other subject
            was_there[0] = True
            return leaf_of(link[0])
        depth += 1
    if link[0] != NULL and is_leaf(link[0]) and leaf_is(t, leaf_of(link[0]), subject, n):
        was_there[0] = True
        return leaf_of(link[0])
    leaf = new_leaf(t, subject, n)
    if leaf == NULL:
        return NULL
    if not put(t, link, depth, subject, n, leaf):
        free_leaf(t, leaf)
        return NULL
    t.size += 1
    t.subject_bytes += n
    return leaf_of(leaf)


cdef void compact(STree *t, void **link) noexcept nogil:
    """Shrink a node that lost a child: replace it by its only child, or by a smaller kind.

    Out of memory it stays as it is, which is valid.
    """
    cdef Node *node = <Node *> link[0]
    cdef Node *below
    cdef uint32_t pos = 0
    cdef void *child
    cdef int key
    cdef char *prefix
    cdef size_t prefix_n
    if node.n > 1:
        if node.n <= SHRINKS_AT[node.kind]:
            node = rebuild(t, node, node.kind - 1, prefix_of(node), node.prefix_n)
            if node != NULL:
                link[0] = node
        return
    next_child(node, &pos, &child, &key)
    if not is_leaf(child):
        below = <Node *> child
        prefix_n = <size_t> node.prefix_n + 1 + below.prefix_n
        prefix = <char *> malloc(prefix_n)
        if prefix == NULL:
            return
        memcpy(prefix, prefix_of(node), node.prefix_n)
        prefix[node.prefix_n] = <char> key
        memcpy(prefix + node.prefix_n + 1, prefix_of(below), below.prefix_n)
        child = rebuild(t, below, below.kind, prefix, prefix_n)
        free(prefix)
        if child == NULL:
            return
    link[0] = child
    free_node(t, node)


cdef void free_chain(STree *t, void *at) noexcept nogil:
    """Free nodes of one child each, and the leaf below them."""
    cdef Node *node
    cdef uint32_t pos
    cdef int key
    while not is_leaf(at):
        node = <Node *> at
        pos = 0
        next_child(node, &pos, &at, &key)
        free_node(t, node)
    free_leaf(t, at)


cdef bint stree_delete(STree *t, const char *subject, size_t n, void *value) noexcept nogil:
    cdef void **link = &t.root
    cdef void **above = NULL     # the link to the last node that keeps a child
    cdef void **top = NULL       # the link to what goes: the leaf, or nodes above it that have nothing else
    cdef void *leaf
    cdef Node *node
    cdef size_t depth = 0
    cdef int key = 0, step_key
    if t.root == NULL:
        return False
    while not is_leaf(link[0]):
        node = <Node *> link[0]
        depth += node.prefix_n
        if depth > n:
            return False
        step_key = key_at(subject, n, depth)
        if node.n > 1:
            above = link
            key = step_key
            top = NULL
        elif top == NULL:
            top = link   # compact() had no memory to replace it
        link = find_child(node, step_key)
        if link == NULL:
            return False
        depth += 1
    leaf = link[0]
    if not leaf_is(t, leaf_of(leaf), subject, n):
        return False
    if value != NULL:
        memcpy(value, leaf_of(leaf), t.value_size)
    t.size -= 1
    t.subject_bytes -= n
    if above == NULL:
        stree_clear(t)
        return True
    leaf = top[0] if top != NULL else leaf
    drop_child(<Node *> above[0], key)
    free_chain(t, leaf)
    compact(t, above)
    return True


# ---- matching ----

cdef inline uint32_t step(const STreeFilter *f, uint32_t at, char c) noexcept nogil:
    """Return a filter's state after one more byte; 0: it cannot match any more, FULL: it matches whatever follows."""
    cdef uint32_t i
    if at & 1:
        # inside the token of a `*`
        i = (at >> 1) - 1
        if c != c'.':
            return at
        return (i + 3) << 1 if i + 1 < f.n else 0
    i = (at >> 1) - 1
    if i >= f.n:
        return 0
    if begins_token(f, i):
        if f.at[i] == c'*' and (i + 1 == f.n or f.at[i + 1] == c'.'):
            return at | 1 if c != c'.' else 0
        if f.at[i] == c'>' and i + 1 == f.n:
            return FULL
    return at + 2 if f.at[i] == c else 0


cdef uint32_t step_all(STreeIter *it, STreeState *s, char c, uint32_t done) noexcept nogil:
    """As step(), for the filters of a state, of which it keeps some. Where others go on with a `*` instead, add a state
    for those, which have gone `done` bytes."""
    cdef const STreeFilter *filters = it.filters
    cdef size_t i = (s.at >> 1) - 1
    cdef uint32_t star = s.first, star_end = s.end
    if s.at & 1:
        # inside the token of a `*`
        if c != c'.':
            return s.at
        return <uint32_t> (i + 3) << 1 if narrow(filters, &s.first, &s.end, i + 1, rank_of(c'.')) else 0
    if begins_token(&filters[s.first], i):
        if has_full(filters, s.first, s.end, i):
            return FULL
        if c != c'.' and find_stars(filters, &star, &star_end, i):
            if star == s.first and star_end == s.end:
                return s.at | 1
            if not more_states(it, 1):
                return 0
            it.states[it.n_states].first = star
            it.states[it.n_states].end = star_end
            it.states[it.n_states].at = s.at | 1
            it.states[it.n_states].done = done
            it.n_states += 1
            if c == c'*':
                s.first = star_end   # the filters that have a longer token
    return s.at + 2 if narrow(filters, &s.first, &s.end, i, rank_of(c)) else 0


cdef inline bint accepts(const STreeIter *it, const STreeState *s) noexcept nogil:
    # Whether one of the filters matches a subject that ends here: the first one, which is the shortest.
    return s.at == FULL or (s.at >> 1) - 1 + (s.at & 1) == it.filters[s.first].n


cdef void run(STreeIter *it, uint32_t k, const char *p, size_t n) noexcept nogil:
    """Advance the k-th state over those of n bytes that it has not seen."""
    cdef STreeState s = it.states[k]   # step_all() may move the states
    cdef size_t i = s.done
    s.done = 0
    while i < n and s.at != 0 and s.at != FULL:
        if s.end - s.first == 1:
            s.at = step(&it.filters[s.first], s.at, p[i])
        else:
            s.at = step_all(it, &s, p[i], <uint32_t> i + 1)
        i += 1
    it.states[k] = s


cdef int the_key(const STreeIter *it, const STreeState *s) noexcept nogil:
    """Return the only key that can continue a match of the state's filters, or ANY_KEY."""
    cdef const STreeFilter *f = &it.filters[s.first]
    cdef size_t i = (s.at >> 1) - 1
    if s.at & 1:
        return ANY_KEY
    if s.end - s.first > 1 and rank_at(f, i) != rank_at(&it.filters[s.end - 1], i):
        return ANY_KEY
    if i == f.n:
        return END_KEY
    if (f.at[i] == c'*' or f.at[i] == c'>') and begins_token(f, i):
        # if the token is not a wildcard after all, step() rejects the other keys
        return ANY_KEY
    return <uint8_t> f.at[i]


cdef bint more_states(STreeIter *it, uint32_t n) noexcept nogil:
    cdef uint32_t room = it.states_room * 2
    cdef STreeState *states
    if it.n_states + n <= it.states_room:
        return True
    while room < it.n_states + n:
        room *= 2
    states = <STreeState *> malloc(room * sizeof(STreeState))
    if states == NULL:
        it.failed = True
        return False
    memcpy(states, it.states, it.n_states * sizeof(STreeState))
    if it.states != it.near_states:
        free(it.states)
    it.states = states
    it.states_room = room
    return True


cdef bint more_frames(STreeIter *it) noexcept nogil:
    cdef STreeFrame *frames
    if it.depth < it.frames_room:
        return True
    frames = <STreeFrame *> malloc(2 * <size_t> it.frames_room * sizeof(STreeFrame))
    if frames == NULL:
        it.failed = True
        return False
    memcpy(frames, it.frames, it.depth * sizeof(STreeFrame))
    if it.frames != it.near_frames:
        free(it.frames)
    it.frames = frames
    it.frames_room *= 2
    return True


cdef bint advance(STreeIter *it, uint32_t first, bint *all, const char *p, size_t n) noexcept nogil:
    """Advance the states from `first` on over n bytes and drop those that fail. False: none is left."""
    cdef uint32_t i = first, kept = first
    if all[0]:
        return True
    while i < it.n_states:
        run(it, i, p, n)   # may add states
        if it.states[i].at == FULL:
            all[0] = True
            it.n_states = first
            return True
        if it.states[i].at:
            it.states[kept] = it.states[i]
            kept += 1
        i += 1
    it.n_states = kept
    return kept > first


cdef bint any_accepts(const STreeIter *it, uint32_t first, bint all) noexcept nogil:
    cdef uint32_t i
    if all:
        return True
    for i in range(first, it.n_states):
        if accepts(it, &it.states[i]):
            return True
    return False


cdef bint enter(STreeIter *it, Node *node, uint32_t depth, uint32_t first, bint all) noexcept nogil:
    """Push a node onto the stack if a subject below it can match; its states are those from `first` on."""
    cdef STreeFrame *frame
    if not advance(it, first, &all, prefix_of(node), node.prefix_n) or not more_frames(it):
        it.n_states = first
        return False
    frame = &it.frames[it.depth]
    it.depth += 1
    frame.node = node
    frame.pos = 0
    frame.depth = depth + node.prefix_n
    frame.states = first
    frame.n = it.n_states - first
    frame.all = all
    frame.only = ANY_KEY
    if not all and frame.n == 1:
        frame.only = <int16_t> the_key(it, &it.states[first])
    return True


cdef void stree_iter(STreeIter *it, STree *t, const STreeFilter *filters, uint32_t n_filters) noexcept nogil:
    it.tree = t
    it.filters = filters
    it.n_filters = n_filters
    it.failed = False
    it.lone = NULL
    it.depth = it.n_states = 0
    it.frames = it.near_frames
    it.states = it.near_states
    it.frames_room = NEAR_FRAMES
    it.states_room = NEAR_STATES
    if t.root == NULL:
        return
    if n_filters:
        it.states[0].first = 0
        it.states[0].end = n_filters
        it.states[0].at = 2
        it.states[0].done = 0
        it.n_states = 1
    if is_leaf(t.root):
        it.lone = t.root
    else:
        enter(it, <Node *> t.root, 0, 0, n_filters == 0)


cdef inline bint found(STreeIter *it, void *p) noexcept nogil:
    cdef char *leaf = leaf_of(p)
    it.subject = leaf_subject(it.tree, leaf)
    it.subject_n = leaf_n(it.tree, leaf)
    it.value = leaf
    return True


cdef bint stree_next(STreeIter *it) noexcept nogil:
    cdef STreeFrame *frame
    cdef void *child
    cdef void **link
    cdef int key
    cdef char c
    cdef bint all, alive
    cdef uint32_t first, depth
    if it.lone != NULL:
        child = it.lone
        it.lone = NULL
        all = it.n_filters == 0
        found(it, child)
        if advance(it, 0, &all, it.subject, it.subject_n) and any_accepts(it, 0, all):
            return True
    while it.depth and not it.failed:
        frame = &it.frames[it.depth - 1]
        it.n_states = first = frame.states + frame.n
        if frame.only == ANY_KEY:
            alive = next_child(<Node *> frame.node, &frame.pos, &child, &key)
        else:
            key = frame.only
            link = find_child(<Node *> frame.node, key) if key != NO_KEY else NULL
            alive = link != NULL
            child = link[0] if alive else NULL
            frame.only = NO_KEY
        if not alive:
            it.depth -= 1
            continue
        all = frame.all
        if not all:
            if not more_states(it, frame.n):
                return False
            memcpy(it.states + first, it.states + frame.states, frame.n * sizeof(STreeState))
            it.n_states += frame.n
        if key == END_KEY:
            if any_accepts(it, first, all):
                return found(it, child)
            continue
        c = <char> key
        if not advance(it, first, &all, &c, 1):
            continue
        depth = frame.depth + 1
        if not is_leaf(child):
            if not enter(it, <Node *> child, depth, first, all) and it.failed:
                return False
            continue
        found(it, child)
        if advance(it, first, &all, it.subject + depth, it.subject_n - depth) and any_accepts(it, first, all):
            return True
    return False


cdef void stree_end(STreeIter *it) noexcept nogil:
    if it.frames != it.near_frames:
        free(it.frames)
    if it.states != it.near_states:
        free(it.states)
    it.frames = it.near_frames
    it.states = it.near_states
    it.depth = 0
    it.lone = NULL
