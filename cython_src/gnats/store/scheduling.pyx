"""Keep a store's table of schedules in step with its messages; see scheduling.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport strlen

from gnats.core.messages.headers cimport named_header
from gnats.core.runtime.clock cimport realtime_ns
from gnats.core.runtime.slice cimport Slice
from gnats.store.base cimport STORE_OK, StoreBase, StoreMsg, blk_at, blk_load, blk_select, retry_after
from gnats.store.block cimport NO_SLOT, MsgBlock, block_record, slot_from
from gnats.store.format.record cimport Record
from gnats.store.index.filter cimport Filter
from gnats.store.index.schedules cimport (
    Schedule,
    Schedules,
    schedule_add,
    schedule_drop,
    schedule_due,
    schedule_find,
    schedule_take,
    schedules_next,
)
from gnats.store.index.seqset cimport seqset_exists
from gnats.store.index.stree cimport STreeFilter
from gnats.store.reading cimport load_next
from gnats.store.times.calendar cimport ns_of, parse_rfc3339
from gnats.store.times.cron cimport SCHEDULE_NONE, Due, next_due


cdef extern from "<string.h>" nogil:
    void *memmem(const void *text, size_t n, const void *part, size_t part_n)


cdef struct Words:
    Slice pattern, zone, scheduler, following    # p is NULL: the header is missing


cdef bint has_schedule_words(const char *hdr, uint32_t n) noexcept nogil:
    cdef const char *word = b"\nNats-Schedule"
    return n and memmem(hdr, n, word, strlen(word)) != NULL


cdef void find_words(const char *hdr, uint32_t hdr_n, Words *out) noexcept nogil:
    out.pattern.p = out.zone.p = out.scheduler.p = out.following.p = NULL
    out.pattern.n = out.zone.n = out.scheduler.n = out.following.n = 0
    if not has_schedule_words(hdr, hdr_n):
        return
    out.pattern = named_header(hdr, hdr_n, b"Nats-Schedule")
    out.zone = named_header(hdr, hdr_n, b"Nats-Schedule-Time-Zone")
    out.scheduler = named_header(hdr, hdr_n, b"Nats-Scheduler")
    out.following = named_header(hdr, hdr_n, b"Nats-Schedule-Next")


cdef bint due_of(const Words *w, int64_t ts, Due *due) noexcept nogil:
    return w.pattern.n and next_due(
        w.pattern.p, w.pattern.n, w.zone.p, w.zone.n, ts, realtime_ns(), due) > SCHEDULE_NONE


cdef void search_from(StoreBase s, uint64_t seq) noexcept nogil:
    # Note that the table may lack schedules from a sequence on.
    s.schedules_from = min(s.schedules_from, seq) if s.schedules_from else seq


cdef uint64_t schedules_high(StoreBase s) noexcept nogil:
    # schedules_from may be beyond last_seq, after a truncation.
    return min(s.schedules_from, s.last_seq + 1) if s.schedules_from else s.last_seq + 1


cdef void find_missing(StoreBase s) noexcept nogil:
    if s.schedules_from:
        schedule_scan(s, s.schedules_from)


cdef int64_t next_schedule(StoreBase s) noexcept nogil:
    cdef int64_t due = schedules_next(&s.schedules)
    return due if s.schedules_from == 0 else min(due, retry_after(realtime_ns()))


cdef Schedule *take_schedule(StoreBase s, int64_t now) noexcept nogil:
    find_missing(s)
    return schedule_take(&s.schedules, now)


cdef void schedule_stored(StoreBase s, MsgBlock *b, const Record *r) noexcept nogil:
    cdef Words w
    cdef Due due
    cdef Schedule *sc
    cdef int64_t secs, nanos
    find_words(r.hdr, r.hdr_n, &w)
    if w.pattern.n:
        b.schedules += 1
    if not s.limits.allow_schedules:
        return
    if due_of(&w, r.ts, &due):
        if schedule_add(&s.schedules, r.seq, r.subject, r.subject_n, due.ts) != 0:
            search_from(s, r.seq)
    elif w.scheduler.n == 0 and s.schedules.n:
        sc = schedule_find(&s.schedules, r.subject, r.subject_n)
        if sc != NULL:
            schedule_drop(&s.schedules, sc)
    if w.following.n and w.scheduler.n and parse_rfc3339(w.following.p, w.following.n, &secs, &nanos):
        sc = schedule_find(&s.schedules, w.scheduler.p, <uint32_t> w.scheduler.n)
        if sc != NULL:
            schedule_due(&s.schedules, sc, ns_of(secs, nanos))


cdef void schedule_removed(StoreBase s, const Record *r) noexcept nogil:
    cdef Schedule *sc
    if s.schedules.n == 0:
        return
    sc = schedule_find(&s.schedules, r.subject, r.subject_n)
    if sc != NULL and sc.seq == r.seq:
        schedule_drop(&s.schedules, sc)


# -- searching messages ------------------------------------------------------------------------------------------------

cdef bint ended(StoreBase s, const char *subject, uint32_t n, uint64_t seq) noexcept nogil:
    """Return whether a message stored on the subject after its schedule (seq) ends the schedule."""
    cdef STreeFilter name
    cdef Filter f
    cdef uint8_t wild = False
    cdef StoreMsg msg
    cdef Words w
    name.at = subject
    name.n = n
    f.subjects = &name
    f.wild = &wild
    f.n = 1
    f.all = False
    while load_next(s, &f, seq + 1, &msg, NULL) == STORE_OK:
        seq = msg.seq
        find_words(msg.hdr, msg.hdr_n, &w)
        if w.scheduler.n == 0:
            return True
    return False


cdef void schedule_scan(StoreBase s, uint64_t start) noexcept nogil:
    cdef MsgBlock *b
    cdef Record r
    cdef Words w
    cdef Due due
    cdef Schedule *sc
    cdef uint32_t k
    cdef size_t i
    s.schedules_from = 0
    for i in range(blk_at(s, start), s.n_blks):
        b = s.blks[i]
        if b.schedules == 0 or b.msgs == 0:
            continue
        if not blk_load(s, b):
            if s.refused:
                search_from(s, max(start, b.first_seq))
                return
            continue
        for k in range(slot_from(b, max(start, b.first_seq)), b.n_slots):
            if b.offs[k] == NO_SLOT or not block_record(&s.env, b, k, &r) or r.hdr_n == 0:
                continue
            find_words(r.hdr, r.hdr_n, &w)
            if not due_of(&w, r.ts, &due):
                continue
            sc = schedule_find(&s.schedules, r.subject, r.subject_n)
            # a schedule of the subject with a greater sequence may be in the table already
            if sc != NULL and sc.seq >= r.seq or ended(s, r.subject, r.subject_n, r.seq):
                continue
            if schedule_add(&s.schedules, r.seq, r.subject, r.subject_n, due.ts) != 0:
                search_from(s, r.seq)
                return


cdef bint is_there(StoreBase s, uint64_t seq) noexcept nogil:
    cdef MsgBlock *b
    if not s.first_seq <= seq <= s.last_seq:
        return False
    b = blk_select(s, seq)
    return b != NULL and b.msgs and seq >= b.first_seq and not seqset_exists(&b.dmap, seq)


cdef void schedule_settle(StoreBase s) noexcept nogil:
    cdef Schedules *all = &s.schedules
    cdef Schedule *sc
    cdef Schedule **gone
    cdef uint32_t i, n = 0
    if all.n == 0:
        return
    gone = <Schedule **> malloc(all.n * sizeof(Schedule *))
    if gone == NULL:
        return    # harmless: a schedule's message is loaded when it is due
    for i in range(all.mask + 1):
        sc = all.slots[i]
        while sc != NULL:
            if not is_there(s, sc.seq):
                gone[n] = sc
                n += 1
            sc = sc.next
    for i in range(n):
        schedule_drop(all, gone[i])
    free(gone)
