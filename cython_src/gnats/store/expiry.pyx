"""Expiry; see expiry.pxd (expireMsgs of filestore.go, getMessageTTL of stream.go)."""
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t

from gnats.core.messages.headers cimport named_header
from gnats.core.runtime.clock cimport realtime_ns
from gnats.core.runtime.slice cimport Slice
from gnats.includes.times cimport time_after, whole_seconds
from gnats.store.base cimport STORE_OK, StoreBase, StoreMsg, blk_at, blk_load, first_of, retry_after
from gnats.store.block cimport NO_SLOT, MsgBlock, block_record, slot_from
from gnats.store.format.record cimport Record
from gnats.store.index.stree cimport SimpleState, stree_find
from gnats.store.index.wheel cimport (
    Expiry,
    wheel_add,
    wheel_clear,
    wheel_has,
    wheel_next,
    wheel_remove,
    wheel_take,
)
from gnats.store.reading cimport load, load_next
from gnats.store.times.durations cimport parse_message_ttl

cdef enum:
    TAKEN = 32       # sequences taken from the wheel at once

cdef inline int64_t expiry_of(int64_t ts, int64_t ttl) noexcept nogil:
    return time_after(ts, whole_seconds(ttl))


cdef void search_from(StoreBase s, uint64_t seq) noexcept nogil:
    # Note that the wheel may lack messages from a sequence on.
    s.ttls_from = min(s.ttls_from, seq) if s.ttls_from else seq


cdef uint64_t ttls_high(StoreBase s) noexcept nogil:
    # ttls_from may be beyond last_seq, after a truncation.
    return min(s.ttls_from, s.last_seq + 1) if s.ttls_from else s.last_seq + 1


cdef void ttl_stored(StoreBase s, uint64_t seq, int64_t ts, int64_t ttl) noexcept nogil:
    if s.limits.allow_ttl and wheel_add(&s.ttls, seq, expiry_of(ts, ttl)) != 0:
        search_from(s, seq)


cdef void ttl_removed(StoreBase s, uint64_t seq) noexcept nogil:
    if s.ttls.count:
        wheel_remove(&s.ttls, seq)


cdef void ttl_clear(StoreBase s) noexcept nogil:
    wheel_clear(&s.ttls)
    s.ttls_from = 0


cdef void ttl_scan(StoreBase s, uint64_t start) noexcept nogil:
    cdef MsgBlock *b
    cdef Record r
    cdef uint32_t k
    cdef int64_t ttl
    cdef size_t i
    s.ttls_from = 0
    for i in range(blk_at(s, start), s.n_blks):
        b = s.blks[i]
        if b.ttls == 0 or b.msgs == 0:
            continue
        if not blk_load(s, b):
            if s.refused:
                search_from(s, max(start, b.first_seq))
                return
            continue
        for k in range(slot_from(b, max(start, b.first_seq)), b.n_slots):
            if b.offs[k] == NO_SLOT or not block_record(&s.env, b, k, &r) or r.hdr_n == 0:
                continue
            ttl = header_ttl(r.hdr, r.hdr_n)
            if ttl > 0 and not wheel_has(&s.ttls, r.seq) and wheel_add(&s.ttls, r.seq, expiry_of(r.ts, ttl)) != 0:
                search_from(s, r.seq)
                return


# --- Nats-TTL ---

cdef int64_t header_ttl(const char *hdr, uint32_t n) noexcept nogil:
    cdef Slice value = named_header(hdr, n, b"Nats-TTL")
    cdef int64_t ttl = 0
    if value.n:
        parse_message_ttl(value.p, value.n, &ttl)
    return ttl


# --- expired messages ---

cdef bint oldest(StoreBase s, uint64_t start, StoreMsg *msg) noexcept nogil:
    # Find the first message that max_age can remove. age_seq saves a second look at messages at the front that never
    # expire.
    start = max(start, s.age_seq)
    while load_next(s, NULL, start, msg, NULL) == STORE_OK:
        if msg.hdr_n == 0 or header_ttl(msg.hdr, msg.hdr_n) >= 0:
            return True
        if s.age_seq >= start or s.age_seq == 0 and start <= s.first_seq:
            s.age_seq = msg.seq + 1
        start = msg.seq + 1
    return False


cdef int64_t next_expiry(StoreBase s) noexcept nogil:
    cdef StoreMsg msg
    cdef int64_t due = wheel_next(&s.ttls) if s.limits.allow_ttl else INT64_MAX
    if s.limits.allow_ttl and s.ttls_from:
        due = min(due, retry_after(realtime_ns()))
    if s.limits.max_age > 0 and s.msgs:
        if oldest(s, 0, &msg):
            due = min(due, time_after(msg.ts, s.limits.max_age))
        elif s.refused:
            due = min(due, retry_after(realtime_ns()))
    return due


cdef uint32_t expired(StoreBase s, int64_t now, uint64_t *seqs, uint32_t n) noexcept nogil:
    cdef StoreMsg msg
    cdef Expiry due[TAKEN]
    cdef uint32_t found = 0
    cdef size_t some = TAKEN, i
    cdef uint64_t start = 0
    if s.limits.allow_ttl and s.ttls_from:
        ttl_scan(s, s.ttls_from)
    while s.limits.allow_ttl and some == TAKEN and found + TAKEN <= n:
        some = wheel_take(&s.ttls, now, due, TAKEN)
        for i in range(some):
            seqs[found] = due[i].seq
            found += 1
    if s.limits.max_age > 0:
        while found < n and oldest(s, start, &msg) and time_after(msg.ts, s.limits.max_age) <= now:
            seqs[found] = msg.seq
            found += 1
            start = msg.seq + 1
    return found


cdef bint first_expired(StoreBase s, const char *subject, uint32_t n, int64_t now) noexcept nogil:
    cdef SimpleState *st = <SimpleState *> stree_find(&s.subjects, subject, n)
    cdef StoreMsg msg
    cdef uint64_t seq = first_of(s, st, subject, n) if st != NULL else 0
    cdef int64_t ttl
    if seq == 0 or load(s, seq, &msg) != STORE_OK:
        return False
    ttl = header_ttl(msg.hdr, msg.hdr_n) if msg.hdr_n else 0
    if ttl > 0 and s.limits.allow_ttl and expiry_of(msg.ts, ttl) <= now:
        return True
    return s.limits.max_age > 0 and ttl >= 0 and time_after(msg.ts, s.limits.max_age) <= now


cdef void expire_again(StoreBase s, const uint64_t *seqs, uint32_t n, int64_t when) noexcept nogil:
    cdef StoreMsg msg
    cdef uint32_t i
    if not s.limits.allow_ttl:
        return
    for i in range(n):
        if wheel_add(&s.ttls, seqs[i], when) != 0:
            # max_age goes on returning it; a message with a TTL is searched for again
            search_from(s, seqs[i])
            continue
        if s.limits.max_age > 0 and oldest(s, 0, &msg) and msg.seq == seqs[i]:
            s.age_seq = msg.seq + 1
