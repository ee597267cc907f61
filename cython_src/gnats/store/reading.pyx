"""Loading messages; see reading.pxd (LoadMsg, LoadNextMsg, LoadPrevMsg and LoadLastMsg of filestore.go)."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.subjects.subject cimport is_valid_subject, subject_has_wildcard
from gnats.includes.atomics cimport likely
from gnats.store.base cimport (
    STORE_AGAIN,
    STORE_CLOSED,
    STORE_DAMAGED,
    STORE_DELETED,
    STORE_EOF,
    STORE_NOT_FOUND,
    STORE_OK,
    STORE_UNREADABLE,
    blk_at,
    blk_load,
    blk_select,
    first_of,
    follow,
    last_of,
    lose_slot,
    msg_of,
)
from gnats.store.block cimport BODY_MAPPED, NO_SLOT, MsgBlock, block_at, block_record, slot_from, slot_of, slot_seq
from gnats.store.format.record cimport RECORD_OK, Record, is_whole_mark, record_hash, record_parse, record_stored_hash
from gnats.store.format.region cimport region_hits
from gnats.store.index.filter cimport filter_match
from gnats.store.index.stree cimport STreeFilter, STreeIter, SimpleState, stree_end, stree_find, stree_iter, stree_next

cdef extern from * nogil:
    """
    static inline void gnats_touch(const char *p, size_t n)
    {
        for (size_t i = 4096; i < n; i += 4096)
            (void)*(volatile const char *)(p + i);
        (void)*(volatile const char *)(p + n - 1);
    }
    """
    void touch "gnats_touch"(const char *p, size_t n)

cdef enum:
    SKIP_AFTER = 2      # blocks without a match, after which the subjects say which block has the next


cdef inline bint whole(StoreBase s, MsgBlock *b, uint32_t offset, const Record *r) noexcept nogil:
    # Return whether the record can still be read. It was checked when the block was loaded, but the file may have
    # become unreadable since. Touching its pages here makes the bad ones fail before a reader has a pointer to them.
    # The rest of a page after the end of a truncated file reads as zeroes; a checksum may end in a zero, hence the
    # second check.
    cdef const char *p = b.region.base + offset
    touch(p, r.size)
    if likely(p[r.size - 1] != 0 and region_hits(b.region) == 0):
        return True
    return record_hash(p, &b.key, r) == record_stored_hash(p, r)


cdef inline bint take(StoreBase s, MsgBlock *b, uint32_t k, const Filter *f, StoreMsg *out) noexcept nogil:
    # Load the message of slot k if the filter matches it. A damaged message counts as lost and does not match.
    cdef Record r
    if b.offs[k] == NO_SLOT:
        return False
    if not block_record(&s.env, b, k, &r):
        lose_slot(s, b, k)
        return False
    if f != NULL and not filter_match(f, r.subject, r.subject_n):
        return False
    if b.kind == BODY_MAPPED:
        if b.offs[k] >= b.flushed:
            b.wlent = True
        elif not whole(s, b, b.offs[k], &r):
            lose_slot(s, b, k)
            return False
    msg_of(&r, out)
    return True


cdef int load(StoreBase s, uint64_t seq, StoreMsg *out) noexcept nogil:
    cdef MsgBlock *b
    cdef uint32_t k
    if s.closed:
        return STORE_CLOSED
    if seq > s.last_seq:
        return STORE_EOF
    if seq < s.first_seq:
        return STORE_NOT_FOUND
    b = blk_select(s, seq)
    if b == NULL or seq < b.first_seq:
        return STORE_DELETED
    if not blk_load(s, b):
        return STORE_UNREADABLE if s.refused else STORE_DAMAGED
    k = slot_of(b, seq)
    if k == NO_SLOT:
        return STORE_DELETED
    return STORE_OK if take(s, b, k, NULL, out) else STORE_DAMAGED


cdef struct Bounds:
    # the nearest blocks with messages that a filter matches, around block `behind`, by index
    uint32_t behind
    uint32_t next         # the first one after it, 0: none
    uint32_t before       # the last one before it, 0: none


cdef Bounds bounds_of(StoreBase s, const Filter *f, uint32_t behind) noexcept nogil:
    cdef Bounds at
    cdef STreeIter it
    cdef SimpleState *st
    cdef uint32_t block
    at.behind = behind
    at.next = at.before = 0
    stree_iter(&it, &s.subjects, f.subjects, f.n)
    # once the neighbours on both sides have messages, no block can be skipped
    while (at.next != behind + 1 or at.before != behind - 1) and stree_next(&it):
        st = <SimpleState *> it.value
        if st.last_block > behind:
            block = max(st.first_block, behind + 1)
            if at.next == 0 or block < at.next:
                at.next = block
        if st.first_block < behind:
            at.before = max(at.before, min(st.last_block, behind - 1))
    if it.failed:
        at.next = behind + 1
        at.before = behind - 1
    stree_end(&it)
    return at


cdef bint next_of(StoreBase s, uint64_t seq, const Filter *f, uint64_t *found) noexcept nogil:
    # Find the subject's next message after that of seq by its link: a consumer usually asks for the message after its
    # last. False: the link does not reach it; no message of the subject is between seq and *found, if that was set.
    cdef MsgBlock *b = blk_select(s, seq)
    cdef Record r
    cdef uint32_t k
    cdef uint64_t at
    if b == NULL or not b.indexed:
        return False
    k = slot_of(b, seq)
    if (k == NO_SLOT or not block_record(&s.env, b, k, &r) or r.subject_n != f.subjects[0].n
            or not filter_match(f, r.subject, r.subject_n)):
        return False
    if not follow(s, b, k, r.subject, r.subject_n, &at):
        found[0] = at
        return False
    found[0] = at
    return True


cdef int load_at(StoreBase s, uint64_t seq, StoreMsg *out, uint64_t *skip) noexcept nogil:
    cdef int code = load(s, seq, out)
    if code == STORE_OK and skip != NULL:
        skip[0] = seq
    return code


cdef inline int unreadable(uint64_t seq, uint64_t *skip) noexcept nogil:
    # No message before seq matches; whether one at or after it does is not known.
    if skip != NULL:
        skip[0] = seq - 1
    return STORE_UNREADABLE


cdef inline bint may_ask(StoreBase s, const int64_t *left) noexcept nogil:
    # Return whether a search may go through all subjects. One with a budget may only where there are few.
    return left == NULL or s.subjects.size <= FEW_SUBJECTS


cdef int load_next(StoreBase s, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip) noexcept nogil:
    return search_next(s, f, start, out, skip, NULL)


cdef int load_prev(StoreBase s, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip) noexcept nogil:
    return search_prev(s, f, start, out, skip, NULL)


cdef int search_next(
    StoreBase s, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip, int64_t *left
) noexcept nogil:
    cdef MsgBlock *b = s.near
    cdef SimpleState *st
    cdef size_t i
    cdef uint64_t stop = s.last_seq
    cdef uint32_t k, missed = 0
    cdef Bounds at
    if s.closed:
        return STORE_CLOSED
    if start < s.first_seq:
        start = s.first_seq
    if f != NULL and f.all:
        f = NULL
    if f != NULL and f.n == 1 and not f.wild[0]:
        # A literal subject: its first and last messages bound the search.
        st = <SimpleState *> stree_find(&s.subjects, f.subjects[0].at, f.subjects[0].n)
        if st == NULL or start > st.last:
            if skip != NULL:
                skip[0] = s.last_seq
            return STORE_EOF
        if start < st.first:
            start = st.first
        stop = st.last
        if start > st.first and next_of(s, start - 1, f, &start):
            return load_at(s, start, out, skip)
        if st.first_needs_update and start == st.first:
            start = first_of(s, st, f.subjects[0].at, f.subjects[0].n)
            if start == 0 and s.refused:
                return unreadable(st.first, skip)
            if start == 0:
                start = stop + 1
    if b != NULL and b.first_seq <= start <= b.last_seq:
        i = s.n_blks    # found below, when the next block is needed
    else:
        i = blk_at(s, start)
        b = s.blks[i] if i < s.n_blks else NULL
        i += 1
    while b != NULL and b.first_seq <= stop:
        if b.msgs and blk_load(s, b):
            k = slot_from(b, max(start, b.first_seq))
            while k < b.n_slots:
                if take(s, b, k, f, out):
                    s.near = b
                    if skip != NULL:
                        skip[0] = out.seq
                    return STORE_OK
                if left != NULL:
                    left[0] -= 1
                    if left[0] <= 0:
                        skip[0] = slot_seq(b, k)
                        return STORE_AGAIN
                k += 1
            missed += 1
        elif b.msgs and s.refused:
            return unreadable(max(start, b.first_seq), skip)
        if i >= s.n_blks:
            i = blk_at(s, b.last_seq + 1)
        if f != NULL and missed % SKIP_AFTER == 0 and missed and may_ask(s, left):
            at = bounds_of(s, f, b.index)
            if at.next == 0:
                break
            while i < s.n_blks and s.blks[i].index < at.next:
                i += 1
        b = s.blks[i] if i < s.n_blks else NULL
        i += 1
    if skip != NULL:
        skip[0] = s.last_seq
    return STORE_EOF


cdef int search_prev(
    StoreBase s, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip, int64_t *left
) noexcept nogil:
    cdef MsgBlock *b
    cdef SimpleState *st
    cdef size_t i
    cdef uint64_t stop = s.first_seq
    cdef uint32_t k, low, missed = 0
    cdef Bounds at
    if s.closed:
        return STORE_CLOSED
    if skip != NULL:
        skip[0] = s.first_seq
    if start > s.last_seq:
        start = s.last_seq
    if f != NULL and f.all:
        f = NULL
    if f != NULL and f.n == 1 and not f.wild[0]:
        st = <SimpleState *> stree_find(&s.subjects, f.subjects[0].at, f.subjects[0].n)
        if st == NULL or start < st.first:
            return STORE_EOF
        start = min(start, st.last)
        stop = st.first
    if start < s.first_seq:
        return STORE_EOF
    i = min(blk_at(s, start) + 1, s.n_blks)
    while i > 0 and s.blks[i - 1].last_seq >= stop:
        i -= 1
        b = s.blks[i]
        if b.msgs == 0 or b.first_seq > start:
            continue
        if not blk_load(s, b):
            if s.refused:
                return STORE_UNREADABLE
            continue
        low = slot_from(b, b.first_seq)
        k = slot_from(b, start + 1)
        while k > low:
            k -= 1
            if take(s, b, k, f, out):
                if skip != NULL:
                    skip[0] = out.seq
                return STORE_OK
            if left != NULL:
                left[0] -= 1
                if left[0] <= 0:
                    skip[0] = slot_seq(b, k)
                    return STORE_AGAIN
        missed += 1
        if f != NULL and missed % SKIP_AFTER == 0 and may_ask(s, left):
            at = bounds_of(s, f, b.index)
            if at.before == 0:
                return STORE_EOF
            while i > 0 and s.blks[i - 1].index > at.before:
                i -= 1
    return STORE_EOF


cdef bint is_marked_whole(StoreBase s, uint64_t seq) noexcept nogil:
    cdef MsgBlock *b = blk_select(s, seq)
    cdef Record r
    cdef uint64_t at
    cdef uint32_t k
    if b == NULL or not blk_load(s, b):
        return False
    k = slot_of(b, seq)
    if k == NO_SLOT or not block_record(&s.env, b, k, &r):
        return False
    at = b.offs[k] + r.size
    return at < b.rbytes and record_parse(block_at(b, at), b.rbytes - at, &r) == RECORD_OK and is_whole_mark(&r)


cdef int load_last(StoreBase s, const char *subject, uint32_t n, StoreMsg *out) noexcept nogil:
    cdef SimpleState *st
    cdef STreeFilter one
    cdef Filter f
    cdef uint8_t wild = 1
    cdef uint64_t seq
    cdef int rc
    if s.closed:
        return STORE_CLOSED
    if n == 1 and subject[0] == c'>':
        # As in nats-server: when the message of last_seq is deleted, there is no last message.
        rc = load(s, s.last_seq, out)
        return STORE_NOT_FOUND if rc == STORE_DELETED or rc == STORE_EOF else rc
    if subject_has_wildcard(subject, n):
        if not is_valid_subject(subject, n):
            return STORE_NOT_FOUND
        one.at = subject
        one.n = n
        f.subjects = &one
        f.wild = &wild
        f.n = 1
        f.all = False
        rc = load_prev(s, &f, s.last_seq, out, NULL)
        return STORE_NOT_FOUND if rc == STORE_EOF else rc
    st = <SimpleState *> stree_find(&s.subjects, subject, n)
    if st == NULL:
        return STORE_NOT_FOUND
    seq = last_of(s, st, subject, n)
    if seq == 0:
        return STORE_UNREADABLE if s.refused else STORE_NOT_FOUND
    return load(s, seq, out)
