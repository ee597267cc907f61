"""A set of subjects; see subjecttrie.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

from gnats.core.subjects.subject cimport hash_bytes, is_token, subjects_collide, token_end
from gnats.includes.atomics cimport exchange32, load32

cdef enum:
    FEW = 4             # fewest buckets
    LOOK_EVERY = 4096   # pairs compared between two looks at `stopped`
    FOUND = 1
    STOPPED = -2
    NO_MEMORY = -1


class Stopped(Exception):
    """stop() was called during or before a comparison."""


# A comparison that is still to be made: the subjects below u with those below v; v NULL: those below u with each other.
cdef struct Pair:
    TrieNode *u
    TrieNode *v


cdef struct Pairs:
    Pair *items
    size_t n, cap


cdef inline bint push(Pairs *todo, TrieNode *u, TrieNode *v) noexcept nogil:
    cdef Pair *more
    if todo.n == todo.cap:
        more = <Pair *> realloc(todo.items, (todo.cap * 2 + 64) * sizeof(Pair))
        if more == NULL:
            return False
        todo.items = more
        todo.cap = todo.cap * 2 + 64
    todo.items[todo.n].u = u
    todo.items[todo.n].v = v
    todo.n += 1
    return True


cdef TrieNode *node_new(const char *p, size_t n, uint32_t hash) noexcept nogil:
    cdef TrieNode *node = <TrieNode *> calloc(1, sizeof(TrieNode) + n)
    if node != NULL:
        memcpy(node.token, p, n)
        node.n = <uint32_t> n
        node.hash = hash
    return node


cdef TrieNode *kid(const TrieNode *of, const char *p, size_t n, uint32_t hash) noexcept nogil:
    cdef TrieNode *node
    if of.cap == 0:
        return NULL
    node = of.buckets[hash & (of.cap - 1)]
    while node != NULL and (node.hash != hash or node.n != n or memcmp(node.token, p, n) != 0):
        node = node.chain
    return node


cdef bint grow(TrieNode *of) noexcept nogil:
    """Make room for another literal child; False when out of memory."""
    cdef uint32_t cap, i
    cdef TrieNode **buckets
    cdef TrieNode *node
    cdef TrieNode *following
    if of.nkids < of.cap:
        return True
    cap = max(of.cap * 2, <uint32_t> FEW)
    buckets = <TrieNode **> calloc(cap, sizeof(TrieNode *))
    if buckets == NULL:
        return False
    for i in range(of.cap):
        node = of.buckets[i]
        while node != NULL:
            following = node.chain
            node.chain = buckets[node.hash & (cap - 1)]
            buckets[node.hash & (cap - 1)] = node
            node = following
    free(of.buckets)
    of.buckets = buckets
    of.cap = cap
    return True


cdef TrieNode *next_node(TrieNode *of, const char *p, size_t n, bint make) noexcept nogil:
    """Return the child for a token other than `>`. NULL when there is none, or with `make` no memory for it."""
    cdef uint32_t hash
    cdef TrieNode *node
    if n == 1 and p[0] == c'*':
        if of.star == NULL and make:
            of.star = node_new(p, n, 0)
        return of.star
    hash = hash_bytes(p, n)
    node = kid(of, p, n, hash)
    if node != NULL or not make:
        return node
    node = node_new(p, n, hash) if grow(of) else NULL
    if node != NULL:
        node.chain = of.buckets[hash & (of.cap - 1)]
        of.buckets[hash & (of.cap - 1)] = node
        of.nkids += 1
    return node


cdef void drop(TrieNode *of, TrieNode *node) noexcept nogil:
    """Free an unused node and the unused nodes below it."""
    cdef TrieNode **at
    cdef TrieNode *below
    if of != NULL and of.star == node:
        of.star = NULL
    elif of != NULL:
        at = &of.buckets[node.hash & (of.cap - 1)]
        while at[0] != node:
            at = &at[0].chain
        at[0] = node.chain
        of.nkids -= 1
    while node != NULL:
        # Unused nodes form a chain: each has at most one child.
        below = node.star
        if below == NULL and node.nkids:
            below = any_kid(node)
        free(node.buckets)
        free(node)
        node = below


cdef TrieNode *any_kid(TrieNode *of) noexcept nogil:
    cdef uint32_t i
    for i in range(of.cap):
        if of.buckets[i] != NULL:
            return of.buckets[i]
    return NULL


cdef inline uint32_t deeper(const TrieNode *node) noexcept nogil:
    """Return the number of subjects with at least one more token."""
    return node.users - node.ends


cdef int compare(SubjectTrie stopper, Pairs *todo, bint both) noexcept nogil:
    """Return FOUND if a subject below a u is covered by one below its v, or with `both` has a literal subject in common
    with it; 0 if none is; else STOPPED or NO_MEMORY."""
    cdef Pair pair
    cdef TrieNode *u
    cdef TrieNode *v
    cdef size_t looked = 0
    while todo.n:
        looked += 1
        if looked % LOOK_EVERY == 0 and load32(&stopper.stopped):
            return STOPPED
        todo.n -= 1
        pair = todo.items[todo.n]
        u = pair.u
        v = pair.v
        if v == NULL:
            if u.ends > 1 or u.tails and deeper(u) > 1:
                return FOUND
            if not push_among(todo, u):
                return NO_MEMORY
            continue
        if u.ends and v.ends or v.tails and deeper(u) or both and u.tails and deeper(v):
            return FOUND
        if v.star != NULL and not push_all(todo, u, v.star, False):
            return NO_MEMORY
        if both and u.star != NULL and not push_all(todo, v, u.star, True):
            return NO_MEMORY
        if not push_common(todo, u, v):
            return NO_MEMORY
    return 0


cdef bint push_among(Pairs *todo, TrieNode *of) noexcept nogil:
    """Add the comparisons of the children of a node with each other. False when out of memory."""
    cdef uint32_t i
    cdef TrieNode *node
    if of.star != NULL and not push(todo, of.star, NULL):
        return False
    for i in range(of.cap):
        node = of.buckets[i]
        while node != NULL:
            if node.users > 1 and not push(todo, node, NULL):
                return False
            if of.star != NULL and not push(todo, node, of.star):
                return False
            node = node.chain
    return True


cdef bint push_all(Pairs *todo, TrieNode *of, TrieNode *star, bint swapped) noexcept nogil:
    """Add the comparisons of the children of a node with another node's `*`. `swapped`: that `*` is the u, and
    the node's own `*` has been compared with it already."""
    cdef uint32_t i
    cdef TrieNode *node
    if not swapped and of.star != NULL and not push(todo, of.star, star):
        return False
    for i in range(of.cap):
        node = of.buckets[i]
        while node != NULL:
            if not (push(todo, star, node) if swapped else push(todo, node, star)):
                return False
            node = node.chain
    return True


cdef bint push_common(Pairs *todo, TrieNode *u, TrieNode *v) noexcept nogil:
    """Add the comparisons of the literal tokens that are below both."""
    cdef TrieNode *few = u if u.nkids <= v.nkids else v
    cdef TrieNode *many = v if few == u else u
    cdef TrieNode *node
    cdef TrieNode *other
    cdef uint32_t i
    for i in range(few.cap):
        node = few.buckets[i]
        while node != NULL:
            other = kid(many, node.token, node.n, node.hash)
            if other != NULL and not (push(todo, node, other) if few == u else push(todo, other, node)):
                return False
            node = node.chain
    return True


cdef class SubjectTrie:
    """A multiset of subjects. Raises MemoryError."""

    def __cinit__(self):
        self.root = node_new(b"", 0, 0)
        if self.root == NULL:
            raise MemoryError

    def __init__(self, subjects=()):
        self.add(subjects)

    def __dealloc__(self):
        cdef TrieNode *node = self.root
        cdef TrieNode *below
        cdef TrieNode *waiting = NULL
        cdef uint32_t i
        # Chain the nodes that are to be freed: a subject may have too many tokens for recursion, and memory may be out.
        while node != NULL:
            if node.star != NULL:
                node.star.chain = waiting
                waiting = node.star
            for i in range(node.cap):
                while node.buckets[i] != NULL:
                    below = node.buckets[i]
                    node.buckets[i] = below.chain
                    below.chain = waiting
                    waiting = below
            free(node.buckets)
            free(node)
            node = waiting
            if node != NULL:
                waiting = node.chain

    def __len__(self) -> int:
        return self.root.users

    cdef int insert(self, const char *p, size_t n) noexcept nogil:
        cdef TrieNode *node = self.root
        cdef TrieNode *found
        cdef size_t start = 0, end
        while start <= n:
            end = token_end(p, n, start)
            if is_token(p, start, end, c'>'):
                break
            found = next_node(node, p + start, end - start, True)
            if found == NULL:
                prune(self.root, p, n)
                return -1
            node = found
            start = end + 1
        if start <= n:
            node.tails += 1
        else:
            node.ends += 1
        count(self.root, p, n, 1)
        return 0

    cdef void remove(self, const char *p, size_t n) noexcept nogil:
        cdef TrieNode *node = self.root
        cdef size_t start = 0, end
        while start <= n and node != NULL:
            end = token_end(p, n, start)
            if is_token(p, start, end, c'>'):
                break
            node = next_node(node, p + start, end - start, False)
            start = end + 1
        if node == NULL or (node.tails if start <= n else node.ends) == 0:
            return
        if start <= n:
            node.tails -= 1
        else:
            node.ends -= 1
        count(self.root, p, n, <uint32_t> -1)
        prune(self.root, p, n)

    def add(self, subjects) -> None:
        """Add subjects, str or bytes: all of them, or none when it raises MemoryError."""
        cdef list texts = [encoded(subject) for subject in subjects]
        cdef bytes text
        cdef size_t i, done = 0
        for text in texts:
            if self.insert(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)) != 0:
                for i in range(done):
                    text = texts[i]
                    self.remove(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
                raise MemoryError
            done += 1

    def discard(self, subjects) -> None:
        """Remove subjects, once each; skip those that are not there."""
        cdef bytes text
        for subject in subjects:
            text = encoded(subject)
            self.remove(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))

    def collides_with(self, SubjectTrie other not None) -> bool:
        """Return whether a subject here and one in `other` match the same literal subject. Raises Stopped."""
        return ask(self, other.root, True)

    def has_collision(self) -> bool:
        """Return whether two subjects here match the same literal subject. Raises Stopped."""
        return ask(self, NULL, True)

    def has_subset(self) -> bool:
        """Return whether one subject here matches all that another one matches. Raises Stopped."""
        return ask(self, NULL, False)

    def first_collision(self, subjects) -> tuple[int, int] | None:
        """Return the index of the first subject that collides with a later one, and that of the first such; or None.

        `subjects` are exactly those of this trie; the search removes them. Raises Stopped.
        """
        cdef list texts = [encoded(subject) for subject in subjects]
        cdef bytes text, other
        cdef SubjectTrie one
        cdef size_t i, j
        for i in range(len(texts)):
            text = texts[i]
            self.remove(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
            one = SubjectTrie((text,))
            if not self.collides_with(one):
                continue
            for j in range(i + 1, len(texts)):
                other = texts[j]
                if subjects_collide(
                        PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text),
                        PyBytes_AS_STRING(other), PyBytes_GET_SIZE(other)):
                    return i, j
        return None

    def stop(self) -> None:
        """Have a comparison in another thread, and every later one of this trie, raise Stopped."""
        exchange32(&self.stopped, 1)


cdef bint ask(SubjectTrie trie, TrieNode *v, bint both) except -1:
    """compare() all subjects with those below v. Raises MemoryError, Stopped."""
    cdef Pairs todo = Pairs(NULL, 0, 0)
    cdef int rc = NO_MEMORY
    with nogil:
        if push(&todo, trie.root, v):
            rc = compare(trie, &todo, both)
        free(todo.items)
    if rc == NO_MEMORY:
        raise MemoryError
    if rc == STOPPED:
        raise Stopped
    return rc == FOUND


cdef bytes encoded(subject):
    return (<str> subject).encode("utf-8", "surrogateescape") if isinstance(subject, str) else bytes(subject)


cdef void count(TrieNode *node, const char *p, size_t n, uint32_t more) noexcept nogil:
    """Count a subject more (or less: -1) at each node on its way."""
    cdef size_t start = 0, end
    node.users += more
    while start <= n:
        end = token_end(p, n, start)
        if is_token(p, start, end, c'>'):
            return
        node = next_node(node, p + start, end - start, False)
        node.users += more
        start = end + 1


cdef void prune(TrieNode *node, const char *p, size_t n) noexcept nogil:
    """Free the unused nodes on a subject's way."""
    cdef size_t start = 0, end
    cdef TrieNode *below
    while start <= n:
        end = token_end(p, n, start)
        below = next_node(node, p + start, end - start, False)
        if below == NULL:
            return
        if below.users == 0:
            drop(node, below)
            return
        node = below
        start = end + 1
