"""Sets of sequences; see seqset.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove, memset

cdef extern from * nogil:
    int popcount "__builtin_popcountll"(uint64_t v)
    int trailing_zeros "__builtin_ctzll"(uint64_t v)
    int leading_zeros "__builtin_clzll"(uint64_t v)

cdef enum:
    MAGIC = 22
    VERSION = 2
    HEADER = 10                      # magic, version, nodes u32, members u32
    ENCODED_NODE = 8 + 8 * NODE_WORDS + 2
    V1_WORDS = 64
    V1_NODE = 8 + 8 * V1_WORDS + 2
    WORDS_BYTES = 8 * NODE_WORDS
    TALLEST = 64                     # greatest height of a balanced tree of nodes


cdef inline uint64_t base_of(uint64_t seq) noexcept nogil:
    return seq & ~<uint64_t> (NODE_BITS - 1)


cdef size_t position(SeqSet *s, uint64_t base) noexcept nogil:
    """Return the index at which the node with this base is, or would be inserted."""
    cdef size_t low = 0, high = s.n, mid
    if s.near < s.n:
        if s.nodes[s.near].base == base:
            return s.near
        if s.nodes[s.near].base < base:
            low = s.near + 1
            if low == s.n or s.nodes[low].base >= base:
                s.near = low
                return low
        else:
            high = s.near
    while low < high:
        mid = (low + high) >> 1
        if s.nodes[mid].base < base:
            low = mid + 1
        else:
            high = mid
    s.near = low
    return low


cdef inline bint has_node(const SeqSet *s, size_t i, uint64_t base) noexcept nogil:
    return i < s.n and s.nodes[i].base == base


cdef bint make_room(SeqSet *s, size_t more) noexcept nogil:
    cdef size_t room = s.room
    cdef SeqNode *nodes
    if s.n + more <= room:
        return True
    room = max(s.n + more, room + (room >> 1) + 2)
    nodes = <SeqNode *> realloc(s.nodes, room * sizeof(SeqNode))
    if nodes == NULL:
        return False
    s.nodes = nodes
    s.room = room
    return True


cdef void drop_node(SeqSet *s, size_t i) noexcept nogil:
    free(s.nodes[i].words)
    s.n -= 1
    memmove(s.nodes + i, s.nodes + i + 1, (s.n - i) * sizeof(SeqNode))
    if s.n == 0:
        seqset_clear(s)


cdef inline bint all_equal(const uint64_t *words, uint64_t value) noexcept nogil:
    cdef int i
    for i in range(NODE_WORDS):
        if words[i] != value:
            return False
    return True


cdef void settle(SeqSet *s, size_t i) noexcept nogil:
    """Drop a node that became empty; free the bitmap of one that became full."""
    cdef uint64_t *words = s.nodes[i].words
    if words == NULL:
        return
    if all_equal(words, 0):
        drop_node(s, i)
    elif all_equal(words, UINT64_MAX):
        free(words)
        s.nodes[i].words = NULL


cdef bint spell_out(SeqNode *node) noexcept nogil:
    """Give a full node its bitmap. False: no memory."""
    cdef uint64_t *words
    if node.words == NULL:
        words = <uint64_t *> malloc(WORDS_BYTES)
        if words == NULL:
            return False
        memset(words, 0xff, WORDS_BYTES)
        node.words = words
    return True


cdef uint64_t *add_node(SeqSet *s, size_t i, uint64_t base) noexcept nogil:
    """Insert an empty node at index i and return its bitmap; NULL: no memory."""
    cdef uint64_t *words
    if not make_room(s, 1):
        return NULL
    words = <uint64_t *> calloc(NODE_WORDS, 8)
    if words == NULL:
        return NULL
    memmove(s.nodes + i + 1, s.nodes + i, (s.n - i) * sizeof(SeqNode))
    s.nodes[i].base = base
    s.nodes[i].words = words
    s.n += 1
    return words


cdef void seqset_clear(SeqSet *s) noexcept nogil:
    cdef size_t i
    for i in range(s.n):
        free(s.nodes[i].words)
    free(s.nodes)
    memset(s, 0, sizeof(SeqSet))


cdef int seqset_copy(SeqSet *to, const SeqSet *s) noexcept nogil:
    cdef size_t i
    cdef uint64_t *words
    if s.n == 0:
        return 0
    if not make_room(to, s.n):
        return SEQSET_NO_MEMORY
    for i in range(s.n):
        words = NULL
        if s.nodes[i].words != NULL:
            words = <uint64_t *> malloc(WORDS_BYTES)
            if words == NULL:
                seqset_clear(to)
                return SEQSET_NO_MEMORY
            memcpy(words, s.nodes[i].words, WORDS_BYTES)
        to.nodes[i].base = s.nodes[i].base
        to.nodes[i].words = words
        to.n += 1
    to.size = s.size
    return 0


cdef bint seqset_exists(SeqSet *s, uint64_t seq) noexcept nogil:
    cdef uint64_t base = base_of(seq)
    cdef size_t i
    if s.n == 0:
        return False
    i = position(s, base)
    if not has_node(s, i, base):
        return False
    return s.nodes[i].words == NULL or s.nodes[i].words[(seq - base) >> 6] >> (seq & 63) & 1


cdef int seqset_insert(SeqSet *s, uint64_t seq) noexcept nogil:
    cdef uint64_t base = base_of(seq)
    cdef size_t i = position(s, base)
    cdef uint64_t *words
    cdef uint64_t mask = <uint64_t> 1 << (seq & 63)
    if has_node(s, i, base):
        words = s.nodes[i].words
        if words == NULL:
            return 0
    else:
        words = add_node(s, i, base)
        if words == NULL:
            return SEQSET_NO_MEMORY
    words += (seq - base) >> 6
    if words[0] & mask:
        return 0
    words[0] |= mask
    s.size += 1
    if words[0] == UINT64_MAX:
        settle(s, i)
    return 1


cdef bint seqset_delete(SeqSet *s, uint64_t seq) noexcept nogil:
    return seqset_delete_range(s, seq, seq) > 0


cdef inline uint64_t word_mask(uint64_t at, uint64_t first, uint64_t last) noexcept nogil:
    """Return the bits of the 64 sequences from `at` on that are between first and last."""
    cdef uint64_t mask = UINT64_MAX
    if first > at:
        mask <<= first - at
    if last - at < 63:
        mask &= UINT64_MAX >> (63 - (last - at))
    return mask


cdef int64_t change(SeqNode *node, uint64_t first, uint64_t last, bint insert) noexcept nogil:
    """Set or clear the bits of first to last in a node; return how many changed."""
    cdef uint64_t i, mask, at
    cdef int64_t changed = 0
    for i in range((first - node.base) >> 6, ((last - node.base) >> 6) + 1):
        at = node.base + (i << 6)
        mask = word_mask(at, first, last)
        if insert:
            changed += popcount(mask & ~node.words[i])
            node.words[i] |= mask
        else:
            changed += popcount(mask & node.words[i])
            node.words[i] &= ~mask
    return changed


cdef int64_t seqset_insert_range(SeqSet *s, uint64_t first, uint64_t last) noexcept nogil:
    cdef uint64_t base, end
    cdef int64_t added = 0, part
    cdef size_t i
    if first > last:
        return 0
    base = base_of(first)
    while True:
        end = min(last, base + (NODE_BITS - 1))
        i = position(s, base)
        if not has_node(s, i, base):
            if first <= base and end == base + (NODE_BITS - 1):
                if not make_room(s, 1):
                    return SEQSET_NO_MEMORY
                memmove(s.nodes + i + 1, s.nodes + i, (s.n - i) * sizeof(SeqNode))
                s.nodes[i].base = base
                s.nodes[i].words = NULL
                s.n += 1
                s.size += NODE_BITS
                added += NODE_BITS
            elif add_node(s, i, base) == NULL:
                return SEQSET_NO_MEMORY
        if s.nodes[i].words != NULL:
            part = change(&s.nodes[i], max(first, base), end, True)
            s.size += <uint64_t> part
            added += part
            settle(s, i)
        if end == last:
            return added
        base += NODE_BITS


cdef bint seqset_prepare_cut(SeqSet *s, uint64_t first) noexcept nogil:
    # Nodes behind the first are dropped as a whole, and need no bitmap for that.
    cdef size_t i
    if s.n == 0:
        return True
    i = position(s, base_of(first))
    return i == s.n or s.nodes[i].base >= first or spell_out(&s.nodes[i])


cdef int64_t seqset_delete_range(SeqSet *s, uint64_t first, uint64_t last) noexcept nogil:
    cdef uint64_t base, end
    cdef int64_t gone = 0, part
    cdef size_t i, kept
    if first > last or s.n == 0:
        return 0
    i = position(s, base_of(first))
    # only the first and the last node can keep members; those between are dropped
    if i < s.n and s.nodes[i].base < first:
        base = s.nodes[i].base
        if not spell_out(&s.nodes[i]):
            return SEQSET_NO_MEMORY
        part = change(&s.nodes[i], first, min(last, base + (NODE_BITS - 1)), False)
        s.size -= <uint64_t> part
        gone += part
        end = s.n
        settle(s, i)
        if s.n == end:
            i += 1
    kept = i
    while i < s.n and s.nodes[i].base <= last and last - s.nodes[i].base >= NODE_BITS - 1:
        part = members(&s.nodes[i])
        s.size -= <uint64_t> part
        gone += part
        free(s.nodes[i].words)
        i += 1
    if i > kept:
        memmove(s.nodes + kept, s.nodes + i, (s.n - i) * sizeof(SeqNode))
        s.n -= i - kept
        if s.n == 0:
            seqset_clear(s)
    if kept < s.n and s.nodes[kept].base <= last:
        if not spell_out(&s.nodes[kept]):
            return SEQSET_NO_MEMORY
        part = change(&s.nodes[kept], s.nodes[kept].base, last, False)
        s.size -= <uint64_t> part
        gone += part
        settle(s, kept)
    return gone


cdef int members(const SeqNode *node) noexcept nogil:
    cdef int i, n = 0
    if node.words == NULL:
        return NODE_BITS
    for i in range(NODE_WORDS):
        n += popcount(node.words[i])
    return n


cdef uint64_t seqset_count(SeqSet *s, uint64_t first, uint64_t last) noexcept nogil:
    cdef uint64_t n = 0, at, low, high, w
    cdef size_t i
    if first > last or s.n == 0:
        return 0
    if first <= seqset_first(s) and last >= seqset_last(s):
        return s.size
    for i in range(position(s, base_of(first)), s.n):
        at = s.nodes[i].base
        if at > last:
            break
        low = max(first, at)
        high = min(last, at + (NODE_BITS - 1))
        if s.nodes[i].words == NULL:
            n += high - low + 1
            continue
        for w in range((low - at) >> 6, ((high - at) >> 6) + 1):
            n += popcount(s.nodes[i].words[w] & word_mask(at + (w << 6), low, high))
    return n


cdef uint64_t seqset_first(const SeqSet *s) noexcept nogil:
    cdef int i
    if s.n == 0:
        return 0
    if s.nodes[0].words != NULL:
        for i in range(NODE_WORDS):
            if s.nodes[0].words[i]:
                return s.nodes[0].base + <uint64_t> (i * 64 + trailing_zeros(s.nodes[0].words[i]))
    return s.nodes[0].base


cdef uint64_t seqset_last(const SeqSet *s) noexcept nogil:
    cdef const SeqNode *node
    cdef int i
    if s.n == 0:
        return 0
    node = &s.nodes[s.n - 1]
    if node.words != NULL:
        for i in range(NODE_WORDS - 1, -1, -1):
            if node.words[i]:
                return node.base + <uint64_t> (i * 64 + 63 - leading_zeros(node.words[i]))
    return node.base + (NODE_BITS - 1)


cdef bint next_member(SeqSet *s, uint64_t start, uint64_t *found) noexcept nogil:
    cdef uint64_t base = base_of(start), w, word
    cdef size_t i
    for i in range(position(s, base), s.n):
        w = 0
        word = UINT64_MAX
        if s.nodes[i].base == base:
            if s.nodes[i].words == NULL:
                found[0] = start
                return True
            w = (start - base) >> 6
            word <<= start & 63
        elif s.nodes[i].words == NULL:
            found[0] = s.nodes[i].base
            return True
        while w < NODE_WORDS:
            word &= s.nodes[i].words[w]
            if word:
                found[0] = s.nodes[i].base + (w << 6) + <uint64_t> trailing_zeros(word)
                return True
            word = UINT64_MAX
            w += 1
    return False


cdef uint64_t seqset_next_absent(SeqSet *s, uint64_t seq) noexcept nogil:
    cdef uint64_t base = base_of(seq), w, word
    cdef size_t i = position(s, base)
    while has_node(s, i, base):
        if s.nodes[i].words != NULL:
            w = (seq - base) >> 6
            word = UINT64_MAX << (seq & 63)
            while w < NODE_WORDS:
                word &= ~s.nodes[i].words[w]
                if word:
                    return base + (w << 6) + <uint64_t> trailing_zeros(word)
                word = UINT64_MAX
                w += 1
        base += NODE_BITS
        seq = base
        i += 1
    return seq


cdef uint64_t seqset_prev_absent(SeqSet *s, uint64_t seq) noexcept nogil:
    cdef uint64_t base = base_of(seq), word
    cdef int64_t w
    cdef size_t i = position(s, base)
    while has_node(s, i, base):
        if s.nodes[i].words != NULL:
            w = <int64_t> ((seq - base) >> 6)
            word = UINT64_MAX >> (63 - (seq & 63))
            while w >= 0:
                word &= ~s.nodes[i].words[w]
                if word:
                    return base + (<uint64_t> w << 6) + <uint64_t> (63 - leading_zeros(word))
                word = UINT64_MAX
                w -= 1
        if base == 0:
            return 0
        seq = base - 1
        base -= NODE_BITS
        if i == 0:
            return seq
        i -= 1
    return seq


cdef bint seqset_next_range(SeqSet *s, uint64_t start, uint64_t *first, uint64_t *last) noexcept nogil:
    if s.n == 0 or not next_member(s, start, first):
        return False
    # where the run reaches the largest number, seqset_next_absent() is 0, and 0 - 1 wraps to that number
    last[0] = seqset_next_absent(s, first[0]) - 1
    return True


cdef size_t seqset_memory(const SeqSet *s) noexcept nogil:
    cdef size_t i, bytes = s.room * sizeof(SeqNode)
    for i in range(s.n):
        if s.nodes[i].words != NULL:
            bytes += WORDS_BYTES
    return bytes


# ---- encoding ----

cdef size_t seqset_encoded_size(const SeqSet *s) noexcept nogil:
    return HEADER + s.n * ENCODED_NODE


cdef struct Subtree:
    size_t first, n


cdef inline int height(size_t n) noexcept nogil:
    # height of a tree of n nodes in which the two halves of each subtree differ by one node at most
    return 64 - leading_zeros(n)


cdef size_t seqset_encode(const SeqSet *s, uint8_t *out) noexcept nogil:
    cdef Subtree todo[TALLEST]
    cdef Subtree tree
    cdef int waiting = 0
    cdef uint8_t *p = out
    cdef uint32_t u32
    cdef uint16_t u16
    cdef const SeqNode *node
    cdef size_t left
    p[0] = MAGIC
    p[1] = VERSION
    u32 = <uint32_t> s.n
    memcpy(p + 2, &u32, 4)
    u32 = <uint32_t> s.size
    memcpy(p + 6, &u32, 4)
    p += HEADER
    if s.n:
        todo[0].first = 0
        todo[0].n = s.n
        waiting = 1
    while waiting:
        waiting -= 1
        tree = todo[waiting]
        left = tree.n >> 1
        node = &s.nodes[tree.first + left]
        memcpy(p, &node.base, 8)
        if node.words == NULL:
            memset(p + 8, 0xff, WORDS_BYTES)
        else:
            memcpy(p + 8, node.words, WORDS_BYTES)
        u16 = <uint16_t> height(tree.n)
        memcpy(p + 8 + WORDS_BYTES, &u16, 2)
        p += ENCODED_NODE
        # the left half comes first; at most one right half waits for each level of the tree
        if tree.n - left > 1:
            todo[waiting].first = tree.first + left + 1
            todo[waiting].n = tree.n - left - 1
            waiting += 1
        if left:
            todo[waiting].first = tree.first
            todo[waiting].n = left
            waiting += 1
    return <size_t> (p - out)


cdef int insert_words(SeqSet *s, uint64_t base, const uint8_t *p, size_t words) noexcept nogil:
    """Add encoded words whose first bit is sequence `base`, which need not be a multiple of NODE_BITS here."""
    cdef uint64_t word, bit
    cdef size_t w, i
    cdef uint64_t *into
    cdef int done
    for w in range(words):
        memcpy(&word, p + 8 * w, 8)
        if word == 0:
            continue
        if base > UINT64_MAX - (w << 6) - 63:
            return SEQSET_BAD
        if base & 63:
            while word:
                bit = base + (w << 6) + <uint64_t> trailing_zeros(word)
                done = seqset_insert(s, bit)
                if done < 0:
                    return done
                word &= word - 1
            continue
        bit = base + (w << 6)
        i = position(s, base_of(bit))
        if not has_node(s, i, base_of(bit)):
            if add_node(s, i, base_of(bit)) == NULL:
                return SEQSET_NO_MEMORY
        into = s.nodes[i].words
        if into != NULL:
            into += (bit - base_of(bit)) >> 6
            s.size += popcount(word & ~into[0])
            into[0] |= word
            if into[0] == UINT64_MAX:
                settle(s, i)
    return 0


cdef int64_t seqset_decode(SeqSet *s, const uint8_t *data, size_t n) noexcept nogil:
    cdef uint32_t nodes, size
    cdef size_t words, encoded
    cdef uint64_t base
    cdef const uint8_t *p = data + HEADER
    cdef int done
    if n < HEADER or data[0] != MAGIC:
        return SEQSET_BAD
    if data[1] == VERSION:
        words = NODE_WORDS
        encoded = ENCODED_NODE
    elif data[1] == 1:
        words = V1_WORDS
        encoded = V1_NODE
    else:
        return SEQSET_BAD
    memcpy(&nodes, data + 2, 4)
    memcpy(&size, data + 6, 4)
    if nodes > (n - HEADER) // encoded:
        return SEQSET_BAD
    while nodes:
        nodes -= 1
        memcpy(&base, p, 8)
        done = insert_words(s, base, p + 8, words)
        if done < 0:
            seqset_clear(s)
            return done
        p += encoded
    if <uint32_t> s.size != size:
        seqset_clear(s)
        return SEQSET_BAD
    return p - data


# ---- for Python ----

cdef class SequenceSet:
    """A set of sequences, numbers below 2**64. Raises MemoryError."""

    def __dealloc__(self):
        seqset_clear(&self.set)

    def __len__(self) -> int:
        return self.set.size

    def __contains__(self, uint64_t seq) -> bool:
        return seqset_exists(&self.set, seq)

    def insert(self, uint64_t seq) -> bool:
        """Insert a number. False: it was a member."""
        cdef int done = seqset_insert(&self.set, seq)
        if done < 0:
            raise MemoryError
        return done == 1

    def delete(self, uint64_t seq) -> bool:
        """Delete a number. False: it was no member."""
        return seqset_delete(&self.set, seq)

    def insert_range(self, uint64_t first, uint64_t last) -> int:
        """Insert first to last, both included; return how many were not members."""
        cdef int64_t n
        with nogil:
            n = seqset_insert_range(&self.set, first, last)
        if n < 0:
            raise MemoryError
        return n

    def delete_range(self, uint64_t first, uint64_t last) -> int:
        """Delete first to last, both included; return how many were members."""
        cdef int64_t n
        with nogil:
            n = seqset_delete_range(&self.set, first, last)
        if n < 0:
            raise MemoryError
        return n

    def count(self, uint64_t first, uint64_t last) -> int:
        """Return the number of members from first to last, both included."""
        return seqset_count(&self.set, first, last)

    @property
    def first(self) -> int:
        """The smallest member, 0 for an empty set."""
        return seqset_first(&self.set)

    @property
    def last(self) -> int:
        """The largest member, 0 for an empty set."""
        return seqset_last(&self.set)

    def next_absent(self, uint64_t seq) -> int:
        """Return the first number at or after seq that is no member; 0 when there is none below 2**64."""
        return seqset_next_absent(&self.set, seq)

    def prev_absent(self, uint64_t seq) -> int:
        """Return the last number at or before seq that is no member; 0 when there is none."""
        return seqset_prev_absent(&self.set, seq)

    def ranges(self, uint64_t start=0) -> list[tuple[int, int]]:
        """Return (first, last) of each run of consecutive members at or after start."""
        cdef uint64_t first, last
        found = []
        while seqset_next_range(&self.set, start, &first, &last):
            found.append((first, last))
            if last == UINT64_MAX:
                break
            start = last + 1
        return found

    def copy(self) -> SequenceSet:
        cdef SequenceSet other = SequenceSet.__new__(SequenceSet)
        if seqset_copy(&other.set, &self.set) < 0:
            raise MemoryError
        return other

    def encode(self) -> bytes:
        cdef size_t n = seqset_encoded_size(&self.set)
        encoded = PyBytes_FromStringAndSize(NULL, n)
        seqset_encode(&self.set, <uint8_t *> PyBytes_AS_STRING(encoded))
        return encoded

    @staticmethod
    def decode(bytes data not None) -> tuple[SequenceSet, int]:
        """Decode the set at the beginning of data; return it and its size in bytes. Raises ValueError."""
        cdef SequenceSet s = SequenceSet.__new__(SequenceSet)
        cdef int64_t n = seqset_decode(&s.set, <const uint8_t *> PyBytes_AS_STRING(data), len(data))
        if n == SEQSET_NO_MEMORY:
            raise MemoryError
        if n < 0:
            raise ValueError("not an encoded set of sequences")
        return s, n

    @property
    def memory(self) -> int:
        """Bytes allocated by the set."""
        return seqset_memory(&self.set)
