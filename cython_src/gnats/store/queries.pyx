"""Queries about stored messages; see queries.pxd (NumPending, MultiLastSeqs, GetSeqFromTime of filestore.go).

Counts come from the SimpleState of each subject. They are enough where each subject has its messages all before, or all
at or after, the given sequence. Otherwise messages are counted one by one, on the side of the sequence with fewer.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort

from gnats.includes.arrays cimport array_grow
from gnats.store.base cimport STORE_OK, StoreBase, StoreMsg, blk_at, blk_load, last_of
from gnats.store.block cimport NO_SLOT, MsgBlock, block_record, slot_from, slot_seq
from gnats.store.format.record cimport Record
from gnats.store.index.filter cimport Filter, filter_match
from gnats.store.index.stree cimport (
    STree,
    STreeIter,
    SimpleState,
    stree_clear,
    stree_delete,
    stree_end,
    stree_init,
    stree_insert,
    stree_iter,
    stree_next,
)
from gnats.store.reading cimport FEW_SUBJECTS, load_next, load_prev


cdef void iter_filter(STreeIter *it, StoreBase s, const Filter *f) noexcept nogil:
    if f == NULL or f.all:
        stree_iter(it, &s.subjects, NULL, 0)
    else:
        stree_iter(it, &s.subjects, f.subjects, f.n)


cdef uint64_t count_all(StoreBase s, uint64_t seq) noexcept nogil:
    # Count the messages of every subject at or after a sequence: one block by its slots, the later ones as a whole.
    cdef uint64_t n = 0
    cdef size_t i = blk_at(s, seq)
    cdef MsgBlock *b
    cdef uint32_t k
    if i == s.n_blks:
        return 0
    b = s.blks[i]
    if seq <= b.first_seq:
        n = b.msgs
    elif b.msgs == b.last_seq - b.first_seq + 1:
        n = b.last_seq - seq + 1
    elif blk_load(s, b):
        for k in range(slot_from(b, seq), b.n_slots):
            n += b.offs[k] != NO_SLOT
    for i in range(i + 1, s.n_blks):
        n += s.blks[i].msgs
    return n


cdef uint64_t count_between(StoreBase s, const Filter *f, uint64_t first, uint64_t last) noexcept nogil:
    cdef uint64_t n = 0
    cdef size_t i = blk_at(s, first)
    cdef MsgBlock *b
    cdef Record r
    cdef uint32_t k
    while i < s.n_blks and s.blks[i].first_seq <= last:
        b = s.blks[i]
        i += 1
        if b.msgs == 0 or not blk_load(s, b):
            continue
        for k in range(slot_from(b, max(first, b.first_seq)), b.n_slots):
            if slot_seq(b, k) > last:
                break
            if b.offs[k] != NO_SLOT and block_record(&s.env, b, k, &r):
                n += filter_match(f, r.subject, r.subject_n)
    return n


cdef uint64_t num_pending(StoreBase s, uint64_t seq, const Filter *f, bint last_per_subject) noexcept nogil:
    cdef STreeIter it
    cdef SimpleState *st
    cdef uint64_t total = 0, sure = 0, straddling = 0, subjects = 0
    if s.msgs == 0 or seq > s.last_seq:
        return 0
    if seq < s.first_seq:
        seq = s.first_seq
    if f != NULL and f.all:
        f = NULL
    if f == NULL and seq == s.first_seq:
        return s.subjects.size if last_per_subject else s.msgs
    if f == NULL and not last_per_subject:
        return count_all(s, seq)
    iter_filter(&it, s, f)
    while stree_next(&it):
        st = <SimpleState *> it.value
        if last_per_subject:
            subjects += st.last >= seq and (
                not st.last_needs_update or st.first >= seq
                or last_of(s, st, it.subject, <uint32_t> it.subject_n) >= seq)
        total += st.msgs
        if st.first >= seq:
            sure += st.msgs
        elif st.last >= seq:
            straddling += st.msgs
    stree_end(&it)
    if last_per_subject:
        return subjects
    if seq == s.first_seq:
        return total
    if straddling == 0:
        return sure
    if seq - s.first_seq < s.last_seq - seq:
        return total - count_between(s, f, s.first_seq, seq - 1)
    return count_between(s, f, seq, s.last_seq)


cdef bint pending_known(StoreBase s, uint64_t seq, const Filter *f, uint64_t *n) noexcept nogil:
    cdef STreeIter it
    cdef SimpleState *st
    cdef uint64_t total = 0, sure = 0
    cdef bint straddling = False
    seq = max(seq, s.first_seq)
    if f == NULL or f.all or s.msgs == 0 or seq > s.last_seq:
        n[0] = num_pending(s, seq, f, False)
        return True
    if s.subjects.size > FEW_SUBJECTS and not (f.n == 1 and not f.wild[0]):
        return False
    iter_filter(&it, s, f)
    while stree_next(&it):
        st = <SimpleState *> it.value
        total += st.msgs
        if st.first >= seq:
            sure += st.msgs
        elif st.last >= seq:
            straddling = True
    stree_end(&it)
    n[0] = total if seq == s.first_seq else sure
    return seq == s.first_seq or not straddling


cdef uint64_t count_some(
    StoreBase s, const Filter *f, uint64_t *at, uint64_t last, int64_t most
) noexcept nogil:
    cdef uint64_t n = 0
    cdef size_t i = blk_at(s, at[0])
    cdef MsgBlock *b
    cdef Record r
    cdef uint32_t k
    while i < s.n_blks and s.blks[i].first_seq <= last:
        b = s.blks[i]
        i += 1
        if b.msgs == 0 or not blk_load(s, b):
            continue
        for k in range(slot_from(b, max(at[0], b.first_seq)), b.n_slots):
            if slot_seq(b, k) > last:
                break
            if most <= 0:
                at[0] = slot_seq(b, k)
                return n
            most -= 1
            if b.offs[k] != NO_SLOT and block_record(&s.env, b, k, &r):
                n += filter_match(f, r.subject, r.subject_n)
    at[0] = last + 1
    return n


cdef uint64_t filtered_state(
    StoreBase s, uint64_t seq, const Filter *f, uint64_t *first, uint64_t *last,
) noexcept nogil:
    cdef StoreMsg msg
    first[0] = last[0] = 0
    if load_next(s, f, seq, &msg, NULL) != STORE_OK:
        return 0
    first[0] = msg.seq
    if load_prev(s, f, s.last_seq, &msg, NULL) == STORE_OK:
        last[0] = msg.seq
    return num_pending(s, seq, f, False)


cdef struct Sequences:
    uint64_t *at
    size_t n, room


cdef bint note_seq(Sequences *list, uint64_t seq) noexcept nogil:
    if list.n == list.room and not array_grow(&list.at, &list.room, 64, sizeof(uint64_t)):
        return False
    list.at[list.n] = seq
    list.n += 1
    return True


cdef int compare(const void *a, const void *b) noexcept nogil:
    cdef uint64_t x = (<const uint64_t *> a)[0], y = (<const uint64_t *> b)[0]
    return (x > y) - (x < y)


cdef bint search_back(StoreBase s, STree *wanted, uint64_t most_seq, Sequences *list) noexcept nogil:
    # Add the last sequence up to most_seq of each wanted subject, and remove the subject from `wanted`.
    cdef MsgBlock *b
    cdef Record r
    cdef uint32_t k, low
    cdef size_t i = min(blk_at(s, most_seq) + 1, s.n_blks)
    while i > 0 and wanted.size:
        i -= 1
        b = s.blks[i]
        if b.msgs == 0 or b.first_seq > most_seq:
            continue
        if not blk_load(s, b):
            if s.refused:
                return False
            continue
        low = slot_from(b, b.first_seq)
        k = slot_from(b, most_seq + 1)
        while k > low and wanted.size:
            k -= 1
            if (b.offs[k] != NO_SLOT and block_record(&s.env, b, k, &r)
                    and stree_delete(wanted, r.subject, r.subject_n, NULL) and not note_seq(list, r.seq)):
                return False
    return True


cdef int64_t multi_last_seqs(
    StoreBase s, const Filter *f, uint64_t most_seq, int64_t most, uint64_t **seqs,
) noexcept nogil:
    cdef STreeIter it
    cdef STree wanted
    cdef SimpleState *st
    cdef Sequences list
    cdef uint64_t seq
    cdef int64_t result
    cdef bint good = True, was_there
    list.at = NULL
    list.n = list.room = 0
    seqs[0] = NULL
    if most_seq == 0 or most_seq > s.last_seq:
        most_seq = s.last_seq
    stree_init(&wanted, 8)
    iter_filter(&it, s, f)
    while good and stree_next(&it):
        st = <SimpleState *> it.value
        if st.first > most_seq:
            continue
        seq = last_of(s, st, it.subject, <uint32_t> it.subject_n)
        if seq > most_seq:
            good = stree_insert(&wanted, it.subject, it.subject_n, &was_there) != NULL
        elif seq:
            good = note_seq(&list, seq)
        else:
            good = not s.refused
        if most > 0 and list.n > <size_t> most:
            break
    good = good and not it.failed
    stree_end(&it)
    if good and wanted.size and not (most > 0 and list.n > <size_t> most):
        good = search_back(s, &wanted, most_seq, &list)
    stree_clear(&wanted)
    if not good or (most > 0 and list.n > <size_t> most):
        free(list.at)
        return -1 if not good else -2
    if list.n:
        qsort(list.at, list.n, sizeof(uint64_t), compare)
    seqs[0] = list.at
    result = list.n
    return result


cdef uint64_t seq_from_time(StoreBase s, int64_t ts) noexcept nogil:
    cdef size_t i
    cdef MsgBlock *b
    cdef Record r
    cdef uint32_t low, high, mid, k
    cdef uint64_t found
    for i in range(s.n_blks):
        b = s.blks[i]
        if b.msgs == 0 or b.last_ts < ts:
            continue
        if not blk_load(s, b):
            if s.refused:
                return b.first_seq    # too many messages are better than too few
            continue
        low = slot_from(b, b.first_seq)
        high = b.n_slots
        found = b.last_seq + 1
        while low < high:
            mid = low + (high - low) // 2
            k = mid
            while k < high and (b.offs[k] == NO_SLOT or not block_record(&s.env, b, k, &r)):
                k += 1
            if k == high:
                high = mid
            elif r.ts >= ts:
                found = r.seq
                high = mid
            else:
                low = k + 1
        if found <= b.last_seq:
            return found
    return s.last_seq + 1
