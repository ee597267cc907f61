"""Removing messages; see removing.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport UINT32_MAX, UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.subjects.subject cimport subject_has_wildcard
from gnats.includes.arrays cimport array_grow
from gnats.store.base cimport (
    STORE_AGAIN,
    STORE_CLOSED,
    STORE_DAMAGED,
    STORE_EOF,
    STORE_FAILED,
    STORE_NO_MEMORY,
    STORE_NO_SEQ,
    STORE_NOT_FOUND,
    STORE_OK,
    STORE_UNREADABLE,
    blk_at,
    blk_drop,
    blk_load,
    blk_select,
    first_of,
    flush_last,
    msg_size,
    next_first,
    note_replaced,
    roll,
    select_next_first,
    subject_removed,
    write_tombstone,
)
from gnats.store.block cimport (
    NO_SLOT,
    MsgBlock,
    block_at,
    block_record,
    block_replace,
    env_fail,
    slot_from,
    slot_of,
    slot_seq,
)
from gnats.store.expiry cimport ttl_removed
from gnats.store.format.record cimport (
    EBIT,
    EMPTY_RECORD,
    MAX_SEQ,
    RECORD_BAD,
    RECORD_SHORT,
    TOMBSTONE,
    Record,
    record_encode,
    record_parse,
)
from gnats.store.index.filter cimport Filter, filter_match
from gnats.store.index.seqset cimport seqset_exists, seqset_insert
from gnats.store.index.stree cimport STreeFilter, STreeIter, SimpleState, stree_end, stree_find, stree_iter, stree_next
from gnats.store.purging cimport purge_all
from gnats.store.reading cimport FEW_SUBJECTS
from gnats.store.scheduling cimport schedule_removed
from gnats.store.statefile cimport invalidate

cdef extern from "<sys/random.h>" nogil:
    ssize_t getrandom(void *buf, size_t n, unsigned int flags)

cdef enum:
    EMPTY_ROLL = 64 * 1024      # bytes of records from which an empty last block is replaced by a new one


# --- blocks without messages ---

cdef bint has_prior_tombs(StoreBase s, MsgBlock *b) noexcept nogil:
    # Return whether a block has tombstones for messages of earlier blocks, so that its file must stay.
    cdef uint64_t at = 0
    cdef Record r
    cdef int bad
    if s.env.in_memory or s.blks[0] == b:
        return False
    if not blk_load(s, b):
        return True
    while at < b.rbytes:
        bad = record_parse(block_at(b, at), b.rbytes - at, &r)
        if bad == RECORD_SHORT or bad == RECORD_BAD:
            return False
        if r.kind == TOMBSTONE and s.blks[0].low_seq <= r.seq < b.low_seq:
            return True
        at += r.size
    return False


cdef int drop_block(StoreBase s, MsgBlock *b) noexcept nogil:
    # Drop an empty block that is not the last. If only it has the store's last sequence, a tombstone keeps that.
    cdef int error
    if b.last_seq == s.last_seq and not s.env.in_memory:
        error = write_tombstone(s, b.last_seq, b.last_ts)
        if error != STORE_OK:
            return error
    return blk_drop(s, b)


cdef void drop_empty(StoreBase s) noexcept nogil:
    while s.n_blks > 1 and s.blks[0].msgs == 0 and s.blks[0] != s.last:
        if drop_block(s, s.blks[0]) != STORE_OK:
            return


cdef int block_emptied(StoreBase s, MsgBlock *b) noexcept nogil:
    if b == s.last and b.rbytes < EMPTY_ROLL and b.rbytes < s.env.block_size:
        return STORE_OK
    return drop_emptied(s, b)


cdef int drop_emptied(StoreBase s, MsgBlock *b) noexcept nogil:
    cdef int error
    if b == s.last:
        error = roll(s)
        if error != STORE_OK:
            return error
    if has_prior_tombs(s, b):
        return STORE_OK
    error = drop_block(s, b)
    drop_empty(s)
    return error


# --- one message ---

cdef int erase_record(StoreBase s, MsgBlock *b, uint64_t seq, uint64_t offset, uint32_t size) noexcept nogil:
    # Replace the block by a copy in which the record is an erased one with a random body.
    cdef char *copy
    cdef char *noise
    cdef int rc
    if flush_last(s) != 0:
        return STORE_FAILED
    copy = <char *> malloc(b.rbytes)
    noise = <char *> malloc(size)
    if copy == NULL or noise == NULL or getrandom(noise, size, 0) < 0:
        free(copy)
        free(noise)
        return STORE_NO_MEMORY
    memcpy(copy, b.region.base, b.rbytes)
    record_encode(copy + offset, &b.key, seq | EBIT, 0, noise, 0, noise, 0, noise, size - EMPTY_RECORD)
    free(noise)
    invalidate(s)
    rc = block_replace(&s.env, b, copy, b.rbytes, True)
    if rc != 0:
        env_fail(&s.env, -rc, "rewrite", b.index)
        return STORE_FAILED
    return STORE_OK if blk_load(s, b) else STORE_DAMAGED


cdef int remove_from(StoreBase s, MsgBlock *b, uint64_t seq, bint erase, bint by_limit) noexcept nogil:
    cdef Record r
    cdef uint32_t k
    cdef uint64_t size, offset
    cdef bint empties
    cdef int error = STORE_OK
    if seq < b.first_seq or (b.dmap.size and seqset_exists(&b.dmap, seq)):
        return STORE_NOT_FOUND
    if not blk_load(s, b):
        return STORE_UNREADABLE if s.refused else STORE_DAMAGED
    k = slot_of(b, seq)
    if k == NO_SLOT:
        return STORE_NOT_FOUND
    empties = b.msgs == 1
    if not block_record(&s.env, b, k, &r):
        r.subject_n = r.hdr_n = r.msg_n = r.size = 0
        r.subject = r.hdr = r.msg = NULL
        r.ts = 0
        r.seq = seq
    if not by_limit or (empties and b == s.last):
        error = write_tombstone(s, seq, r.ts)
        if error != STORE_OK:
            return error
        # the tombstone may have moved wbuf
        if r.size:
            block_record(&s.env, b, k, &r)
    elif not s.env.in_memory and s.last.flushed != s.last.rbytes:
        note_replaced(s, seq, b.offs[k])
    offset = b.offs[k]
    size = min(msg_size(s, &r), b.bytes) if r.size else (b.bytes // b.msgs)
    b.offs[k] = NO_SLOT
    b.msgs -= 1
    b.bytes -= size
    b.no_compact = False
    s.msgs -= 1
    s.bytes -= size
    s.dirty += 1
    if seq == b.first_seq:
        next_first(b, seq)
    elif not empties and seqset_insert(&b.dmap, seq) < 0:
        # Only the slots know of this deletion now: the block must stay loaded.
        b.pinned = True
    if seq == s.first_seq:
        if empties:
            select_next_first(s)
        else:
            s.first_seq = b.first_seq
            s.first_ts = b.first_ts
    if r.size:
        if r.hdr_n:
            ttl_removed(s, seq)
            schedule_removed(s, &r)
        subject_removed(s, &r)
        if s.on_removed != NULL:
            s.on_removed(s.ctx, seq, r.subject, r.subject_n, 1, size)
    elif s.on_removed != NULL:
        s.on_removed(s.ctx, 0, NULL, 0, 1, size)
    if empties:
        if b == s.last and erase and r.size and s.env.sealer == NULL:
            error = erase_record(s, b, seq, offset, r.size)
            if error != STORE_OK:
                return error
        return block_emptied(s, b)
    if erase and r.size and s.env.sealer == NULL:
        return erase_record(s, b, seq, offset, r.size)
    return STORE_OK


cdef int remove_msg(StoreBase s, uint64_t seq, bint erase, bint by_limit) noexcept nogil:
    cdef MsgBlock *b
    if s.closed:
        return STORE_CLOSED
    if s.env.error:
        return STORE_FAILED
    if seq > s.last_seq:
        return STORE_EOF
    b = blk_select(s, seq)
    if b == NULL or seq == 0:
        return STORE_NOT_FOUND
    return remove_from(s, b, seq, erase, by_limit)


# --- limits ---

cdef int purge_block(StoreBase s, MsgBlock *b) noexcept nogil:
    cdef Record r
    cdef uint32_t k
    cdef uint64_t msgs = b.msgs, size = b.bytes
    # write the newer messages before those that they replace are removed
    if flush_last(s) != 0:
        return STORE_FAILED
    if not blk_load(s, b):
        return STORE_UNREADABLE if s.refused else STORE_DAMAGED
    for k in range(slot_from(b, b.first_seq), b.n_slots):
        if b.offs[k] != NO_SLOT and block_record(&s.env, b, k, &r):
            if r.hdr_n:
                ttl_removed(s, r.seq)
                schedule_removed(s, &r)
            subject_removed(s, &r)
    s.msgs -= msgs
    s.bytes -= size
    b.msgs = b.bytes = 0
    b.first_seq = b.last_seq + 1
    b.first_ts = 0
    select_next_first(s)
    if s.on_removed != NULL and msgs:
        s.on_removed(s.ctx, 0, NULL, 0, msgs, size)
    return drop_emptied(s, b)


cdef int remove_first(StoreBase s) noexcept nogil:
    cdef MsgBlock *b = blk_select(s, s.first_seq)
    if b == NULL or b.first_seq != s.first_seq:
        return STORE_NOT_FOUND
    return remove_from(s, b, s.first_seq, False, True)


cdef MsgBlock *first_with_msgs(StoreBase s) noexcept nogil:
    cdef size_t i
    for i in range(s.n_blks):
        if s.blks[i].msgs:
            return s.blks[i]
    return NULL


cdef int enforce(StoreBase s, int64_t limit, bint bytes) noexcept nogil:
    # Remove whole blocks as long as the rest is at or over the limit, then single messages.
    cdef uint64_t most = limit if limit > 0 else 0, rest
    cdef MsgBlock *b
    cdef int error = STORE_OK
    if most == 0 or s.limits.discard_new:
        return STORE_OK
    while (s.bytes if bytes else s.msgs) > most and error == STORE_OK:
        b = first_with_msgs(s)
        if b == NULL:
            break
        rest = s.bytes - b.bytes if bytes else s.msgs - b.msgs
        error = purge_block(s, b) if b != s.last and rest >= most else remove_first(s)
    return error


cdef int enforce_msgs(StoreBase s) noexcept nogil:
    return enforce(s, s.limits.max_msgs, False)


cdef int enforce_bytes(StoreBase s) noexcept nogil:
    return enforce(s, s.limits.max_bytes, True)


cdef int enforce_per_subject(StoreBase s) noexcept nogil:
    cdef STreeIter it
    cdef SimpleState *st
    cdef uint64_t most = s.limits.max_msgs_per, seq
    # The subjects over the limit, each after its length: they are copied because a removal changes the tree.
    cdef char *names = NULL
    cdef const char *subject
    cdef size_t n_names = 0, room = 0, at = 0
    cdef uint32_t n
    cdef int error = STORE_OK
    if s.limits.max_msgs_per <= 0:
        return STORE_OK
    stree_iter(&it, &s.subjects, NULL, 0)
    while error == STORE_OK and stree_next(&it):
        n = <uint32_t> it.subject_n
        if (<SimpleState *> it.value).msgs <= most:
            continue
        while room - n_names < sizeof(n) + n and error == STORE_OK:
            if not array_grow(&names, &room, 4096, 1):
                error = STORE_NO_MEMORY
        if error == STORE_OK:
            memcpy(names + n_names, &n, sizeof(n))
            memcpy(names + n_names + sizeof(n), it.subject, n)
            n_names += sizeof(n) + n
    if it.failed:
        error = STORE_NO_MEMORY
    stree_end(&it)
    while at < n_names and error == STORE_OK:
        memcpy(&n, names + at, sizeof(n))
        subject = names + at + sizeof(n)
        at += sizeof(n) + n
        while error == STORE_OK:
            st = <SimpleState *> stree_find(&s.subjects, subject, n)
            if st == NULL or st.msgs <= most:
                break
            seq = first_of(s, st, subject, n)
            if seq == 0:
                break
            error = remove_msg(s, seq, False, True)
    free(names)
    return error


# --- many ---

cdef int purge(StoreBase s, uint64_t first, uint64_t *purged) noexcept nogil:
    cdef uint64_t msgs = s.msgs, size = s.bytes
    cdef int error
    purged[0] = 0
    if s.closed:
        return STORE_CLOSED
    if s.env.error:
        return STORE_FAILED
    if first > MAX_SEQ + 1:
        return STORE_NO_SEQ
    error = purge_all(s, first, False)
    purged[0] = msgs - s.msgs
    if s.on_removed != NULL and purged[0]:
        s.on_removed(s.ctx, 0, NULL, 0, msgs, size)
    return error


cdef int compact(StoreBase s, uint64_t seq, uint64_t *purged) noexcept nogil:
    cdef MsgBlock *b
    cdef uint64_t before = s.msgs
    cdef int error = STORE_OK
    purged[0] = 0
    if s.closed:
        return STORE_CLOSED
    if s.env.error:
        return STORE_FAILED
    if seq > s.last_seq:
        return purge(s, seq, purged)
    while error == STORE_OK and s.msgs and s.first_seq < seq:
        b = first_with_msgs(s)
        if b.last_seq < seq:
            error = purge_block(s, b)
        else:
            error = remove_from(s, b, b.first_seq, False, False)
    purged[0] = before - s.msgs
    return error


cdef int purge_subject(
    StoreBase s, const char *subject, uint32_t n, uint64_t stop, uint64_t most, uint64_t *purged,
) noexcept nogil:
    # Purge one literal subject, from its first message on.
    cdef SimpleState *st
    cdef uint64_t seq
    cdef int error = STORE_OK
    while error == STORE_OK and purged[0] < most:
        st = <SimpleState *> stree_find(&s.subjects, subject, n)
        if st == NULL:
            break
        seq = first_of(s, st, subject, n)
        if seq == 0 and s.refused:
            error = STORE_UNREADABLE
        if seq == 0 or seq >= stop:
            break
        error = remove_msg(s, seq, False, False)
        if error == STORE_OK:
            purged[0] += 1
    return error


cdef int purge_ex(
    StoreBase s, const char *subject, uint32_t n, uint64_t seq, uint64_t keep, uint64_t *purged,
) noexcept nogil:
    cdef Purge p
    cdef int error = STORE_AGAIN
    p.begun = False
    while error == STORE_AGAIN:
        error = purge_some(s, subject, n, seq, keep, &p)
    purged[0] = p.purged
    return error


cdef const char *ALL = b">"


cdef int begin_purge(
    StoreBase s, const char *subject, uint32_t n, uint64_t seq, uint64_t keep, Purge *p
) noexcept nogil:
    # Find out which messages to remove. STORE_OK with p.most == 0: there is nothing to do, or it is done.
    cdef STreeFilter name
    cdef STreeIter it
    cdef SimpleState *st
    cdef uint64_t msgs = 0
    cdef bint every = n == 0 or (n == 1 and subject[0] == c'>')
    p.begun = True
    p.purged = p.most = 0
    p.at = 0
    p.stop = seq if seq else s.last_seq + 1
    p.first_block = 0
    p.last_block = UINT32_MAX
    if seq == 1:
        return STORE_OK
    if every and keep == 0 and seq == 0:
        return purge(s, 0, &p.purged)
    if every and seq > 1:
        return compact(s, seq, &p.purged)
    if keep == 0 and s.subjects.size > FEW_SUBJECTS:
        p.most = UINT64_MAX
        return STORE_OK
    name.at = ALL if every else subject
    name.n = 1 if every else n
    p.first_block = UINT32_MAX
    p.last_block = 0
    stree_iter(&it, &s.subjects, &name, 1)
    while stree_next(&it):
        st = <SimpleState *> it.value
        msgs += st.msgs
        p.first_block = min(p.first_block, st.first_block)
        p.last_block = max(p.last_block, st.last_block)
    if not it.failed and keep < msgs:
        p.most = msgs - keep
    stree_end(&it)
    return STORE_NO_MEMORY if it.failed else STORE_OK


cdef int purge_some(
    StoreBase s, const char *subject, uint32_t n, uint64_t seq, uint64_t keep, Purge *p
) noexcept nogil:
    cdef STreeFilter name
    cdef Filter f
    cdef uint8_t wild
    cdef MsgBlock *b
    cdef Record r
    cdef uint32_t k, index, looks = PURGE_AT_ONCE
    cdef size_t i
    cdef uint64_t some
    cdef bint gone
    cdef int error
    if not p.begun:
        p.purged = 0
    if s.closed:
        return STORE_CLOSED
    if s.env.error:
        return STORE_FAILED
    if not p.begun:
        error = begin_purge(s, subject, n, seq, keep, p)
        if error != STORE_OK or p.most == 0:
            return error
    error = STORE_OK
    name.at = subject if n else ALL
    name.n = n if n else 1
    wild = subject_has_wildcard(name.at, name.n)
    f.subjects = &name
    f.wild = &wild
    f.n = 1
    f.all = name.n == 1 and name.at[0] == c'>'
    if not wild:
        some = min(p.purged + looks, p.most)
        error = purge_subject(s, subject, n, p.stop, some, &p.purged)
        return STORE_AGAIN if error == STORE_OK and p.purged == some and some < p.most else error
    i = blk_at(s, p.at)
    while i < s.n_blks and error == STORE_OK and p.purged < p.most:
        b = s.blks[i]
        if b.index > p.last_block or b.first_seq >= p.stop:
            break
        if b.index < p.first_block or b.msgs == 0:
            i += 1
            continue
        if not blk_load(s, b):
            return STORE_UNREADABLE if s.refused else STORE_DAMAGED
        index = b.index
        gone = False
        k = slot_from(b, max(p.at, b.first_seq))
        while not gone and k < b.n_slots and error == STORE_OK and p.purged < p.most:
            p.at = slot_seq(b, k)
            if p.at >= p.stop:
                break
            if looks == 0:
                return STORE_AGAIN
            looks -= 1
            if b.offs[k] != NO_SLOT and block_record(&s.env, b, k, &r) and filter_match(&f, r.subject, r.subject_n):
                gone = b.msgs == 1
                error = remove_from(s, b, r.seq, False, False)
                p.purged += error == STORE_OK
            k += 1
        # the removals may have dropped blocks, this one included: find the next by index
        i = 0
        while i < s.n_blks and s.blks[i].index <= index:
            i += 1
    return error
