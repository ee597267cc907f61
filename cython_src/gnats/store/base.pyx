"""The state that all modules of a store share; see base.pxd."""
from libc.errno cimport EAGAIN, EBADMSG, EMFILE, ENFILE, ENOENT, ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memmove, memset

from gnats.core.subjects.subject cimport same_bytes
from gnats.includes.arrays cimport array_grow
from gnats.includes.pthread cimport pthread_mutex_destroy, pthread_mutex_init
from gnats.store.block cimport (
    NO_SLOT,
    BlockEnv,
    MsgBlock,
    block_at,
    block_commit,
    block_create,
    block_drop_pending,
    block_encode,
    block_flush,
    block_free,
    block_load,
    block_record,
    block_reserve,
    block_seal,
    block_set_aside,
    block_sync,
    block_unlink,
    env_sync,
    env_sync_failed,
    slot_from,
    slot_seq,
)
from gnats.store.format.record cimport EMPTY_RECORD, RECORD_OK, TBIT, Record, record_parse
from gnats.store.index.schedules cimport schedules_clear
from gnats.store.index.seqset cimport (
    SeqSet,
    seqset_clear,
    seqset_count,
    seqset_delete_range,
    seqset_insert_range,
    seqset_next_range,
)
from gnats.store.index.stree cimport SimpleState, stree_clear, stree_delete, stree_find, stree_init, stree_insert
from gnats.store.index.wheel cimport wheel_clear, wheel_init


cdef class StoreBase:
    """The fields of a store; MsgStore has the methods."""

    def __cinit__(self):
        pthread_mutex_init(&self.lock, NULL)
        pthread_mutex_init(&self.sync_mutex, NULL)
        memset(&self.env, 0, sizeof(BlockEnv))
        pthread_mutex_init(&self.env.sync_lock, NULL)
        stree_init(&self.subjects, sizeof(SimpleState))
        wheel_init(&self.ttls)
        self.env.dirfd = self.env.storefd = -1
        self.first_seq = 1
        self.closed = True

    def __dealloc__(self):
        cdef size_t i
        for i in range(self.n_blks):
            block_free(&self.env, self.blks[i])
        free(self.blks)
        free(self.replaced)
        seqset_clear(&self.lost)
        stree_clear(&self.subjects)
        wheel_clear(&self.ttls)
        schedules_clear(&self.schedules)
        pthread_mutex_destroy(&self.env.sync_lock)
        pthread_mutex_destroy(&self.sync_mutex)
        pthread_mutex_destroy(&self.lock)


# --- the list of blocks ---

cdef size_t blk_at(StoreBase s, uint64_t seq) noexcept nogil:
    cdef size_t low = 0, high = s.n_blks, mid
    if high and s.last.first_seq <= seq and s.last.first_seq <= s.last.last_seq:
        low = high - 1
    while low < high:
        mid = low + (high - low) // 2
        if s.blks[mid].last_seq < seq:
            low = mid + 1
        else:
            high = mid
    return low


cdef MsgBlock *blk_by_index(StoreBase s, uint32_t index) noexcept nogil:
    cdef size_t low = 0, high = s.n_blks, mid
    while low < high:
        mid = low + (high - low) // 2
        if s.blks[mid].index < index:
            low = mid + 1
        else:
            high = mid
    return s.blks[low] if low < s.n_blks and s.blks[low].index == index else NULL


cdef size_t blk_position(StoreBase s, const MsgBlock *b) noexcept nogil:
    cdef size_t low = 0, high = s.n_blks, mid
    while low < high:
        mid = low + (high - low) // 2
        if s.blks[mid].index < b.index:
            low = mid + 1
        else:
            high = mid
    return low


cdef int blk_add(StoreBase s, MsgBlock *b) noexcept nogil:
    if s.n_blks == s.blk_room and not array_grow(&s.blks, &s.blk_room, 8, sizeof(MsgBlock *)):
        return -1
    s.blks[s.n_blks] = b
    s.n_blks += 1
    return 0


cdef void blk_forget(StoreBase s, MsgBlock *b) noexcept nogil:
    cdef size_t i = blk_position(s, b)
    s.n_blks -= 1
    memmove(s.blks + i, s.blks + i + 1, (s.n_blks - i) * sizeof(MsgBlock *))
    if s.near == b:
        s.near = NULL
    if s.last == b:
        s.last = NULL
    block_free(&s.env, b)


cdef int sync_written(StoreBase s) noexcept nogil:
    cdef size_t i
    cdef MsgBlock *b
    cdef int rc = flush_last(s), err
    if not s.env.sync_always or s.env.in_memory:
        return rc
    for i in range(s.n_blks):
        b = s.blks[i]
        if b.syncing:
            # The other thread's sync may end after this one: sync the file here as well.
            b.need_sync = True
            b.need_key_sync = b.seal_key != NULL
        if rc == 0:
            rc = block_sync(&s.env, b)
    if rc == 0 and (s.env.dir_dirty or s.env.dir_syncing):
        err = env_sync(&s.env, s.env.dirfd, True)
        if err:
            return env_sync_failed(&s.env, err, 0)
        s.env.dir_dirty = False
    return rc


cdef int blk_drop(StoreBase s, MsgBlock *b) noexcept nogil:
    # Sync the newer messages that replaced those of this block before its file goes. A file that cannot be removed is
    # found at the next start; limits and tombstones remove its messages then.
    if b != s.last and sync_written(s) != 0:
        return STORE_FAILED
    if b.damaged:
        # keep the file: its damaged part may be recovered by other means
        block_set_aside(&s.env, b)
    else:
        block_unlink(&s.env, b)
    blk_forget(s, b)
    s.dirty += 1
    return STORE_OK


cdef bint blk_load(StoreBase s, MsgBlock *b) noexcept nogil:
    cdef int rc
    s.refused = False
    if b.indexed:
        b.used = s.env.tick
        return True
    rc = block_load(&s.env, b)
    s.refused = rc == -EMFILE or rc == -ENFILE or rc == -ENOMEM or rc == -EAGAIN
    if rc == 0 and not s.env.in_memory:
        settle(s, b)
    elif rc == -ENOENT or rc == -EBADMSG:
        # The file is gone, or it is compressed and damaged: all its messages are lost.
        b.damaged = True
        lose(s, b, b.first_seq, b.last_seq, b.msgs, b.bytes)
    return rc == 0


cdef void add_lost_note(StoreBase s, uint32_t block, uint64_t first, uint64_t last, uint64_t n) noexcept nogil:
    cdef LostNote *note
    if s.n_notes == LOST_NOTES or (s.n_notes and s.notes[s.n_notes - 1].block == block):
        note = &s.notes[s.n_notes - 1]
        note.first = min(note.first, first)
        note.last = max(note.last, last)
        note.n += n
        return
    note = &s.notes[s.n_notes]
    note.block = block
    note.first = first
    note.last = last
    note.n = n
    s.n_notes += 1
    if s.n_notes == 1 and s.on_lost != NULL:
        s.on_lost(s.ctx)


cdef void note_lost(
    StoreBase s, uint32_t block, SeqSet *but, uint64_t first, uint64_t last, uint64_t n,
) noexcept nogil:
    cdef uint64_t at = first, end = 0, gap_first = 0, gap_last = 0, left = n, start = 0
    cdef bint gap
    while left and at <= last:
        gap = but != NULL and seqset_next_range(but, at, &gap_first, &gap_last) and gap_first <= last
        if not gap or gap_first > at:
            end = gap_first - 1 if gap else last
            if end - at >= left:
                end = at + (left - 1)
            seqset_insert_range(&s.lost, at, end)
            left -= end + 1 - at
            if start == 0:
                start = at
        if not gap or gap_last >= last:
            break
        at = gap_last + 1
    if left < n:
        add_lost_note(s, block, start, end, n - left)


cdef void lose(StoreBase s, MsgBlock *b, uint64_t first, uint64_t last, uint64_t n, uint64_t size) noexcept nogil:
    # Count n messages between first and last as lost, `size` bytes in all; their sequences become deleted.
    if n == 0:
        return
    note_lost(s, b.index, &b.dmap, first, last, n)
    if seqset_insert_range(&b.dmap, first, last) < 0:
        b.pinned = True
    s.env.damaged += n
    s.lost_bytes += size
    b.msgs -= n
    b.bytes -= size
    s.msgs -= n
    s.bytes -= size
    s.dirty += 1
    s.subjects_stale = True
    if b.msgs == 0:
        b.first_seq = b.last_seq + 1
        b.first_ts = 0
        seqset_clear(&b.dmap)
    elif first == b.first_seq:
        next_first(b, last)
    select_next_first(s)
    if s.on_removed != NULL:
        s.on_removed(s.ctx, 0, NULL, 0, n, size)


cdef void lose_slot(StoreBase s, MsgBlock *b, uint32_t k) noexcept nogil:
    cdef uint64_t seq = slot_seq(b, k), end = b.rbytes, at = b.offs[k]
    b.offs[k] = NO_SLOT
    b.damaged = True
    s.rescan = True
    for k in range(k + 1, b.n_slots):
        if b.offs[k] != NO_SLOT:
            end = b.offs[k]
            break
    lose(s, b, seq, seq, 1, min(end - at, b.bytes))


cdef void settle(StoreBase s, MsgBlock *b) noexcept nogil:
    # Count the messages as lost that a block should have and that have no slot after it was loaded.
    cdef uint64_t live = 0, size = 0, at = b.first_seq, last = b.last_seq, missing = b.msgs, seq, n
    cdef uint32_t k, low = slot_from(b, b.first_seq)
    cdef Record r
    for k in range(low, b.n_slots):
        live += b.offs[k] != NO_SLOT
    if live == b.msgs:
        return
    b.damaged = True
    for k in range(low, b.n_slots):
        if b.offs[k] != NO_SLOT and block_record(&s.env, b, k, &r):
            size += r.size
    missing -= min(live, missing)
    size = b.bytes - min(size, b.bytes)
    for k in range(low, b.n_slots + 1):
        if k < b.n_slots and b.offs[k] == NO_SLOT:
            continue
        seq = slot_seq(b, k) if k < b.n_slots else last + 1
        if seq > at and missing:
            n = seq - at - seqset_count(&b.dmap, at, seq - 1)
            n = min(n, missing)
            lose(s, b, at, seq - 1, n, size if n == missing else size // missing * n)
            if n:
                size -= size if n == missing else size // missing * n
                missing -= n
        at = seq + 1


cdef bint rebuild_subjects(StoreBase s) noexcept nogil:
    cdef SimpleState *st
    cdef MsgBlock *b
    cdef Record r
    cdef size_t i
    cdef uint32_t k
    cdef bint was_there
    stree_clear(&s.subjects)
    s.subjects_stale = False
    for i in range(s.n_blks):
        b = s.blks[i]
        if b.msgs == 0:
            continue
        if not blk_load(s, b):
            s.subjects_stale |= s.refused
            continue
        for k in range(slot_from(b, b.first_seq), b.n_slots):
            if b.offs[k] == NO_SLOT or not block_record(&s.env, b, k, &r) or r.subject_n == 0:
                continue
            st = <SimpleState *> stree_insert(&s.subjects, r.subject, r.subject_n, &was_there)
            if st == NULL:
                s.subjects_stale = True
                return False
            subject_stored(s, st, r.seq, b.index)
    return True


# --- adding records ---

cdef int roll(StoreBase s) noexcept nogil:
    cdef MsgBlock *b
    cdef uint32_t index = 1
    if s.last != NULL:
        if flush_last(s) != 0:
            return STORE_FAILED
        index = s.last.index + 1
    b = block_create(&s.env, index, s.last_seq + 1)
    if b == NULL:
        return STORE_FAILED if s.env.error else STORE_NO_MEMORY
    b.last_ts = b.flushed_ts = s.last_ts
    if blk_add(s, b) != 0:
        block_unlink(&s.env, b)
        block_free(&s.env, b)
        return STORE_NO_MEMORY
    if s.last != NULL:
        block_seal(&s.env, s.last)
    s.last = b
    return STORE_OK


cdef char *reserve(StoreBase s, size_t n, int *error) noexcept nogil:
    cdef char *p
    if s.last == NULL or (s.last.rbytes > 0 and s.last.rbytes + n > s.env.block_size):
        error[0] = roll(s)
        if error[0] != STORE_OK:
            return NULL
    p = block_reserve(&s.env, s.last, n)
    if p == NULL:
        if s.env.error:
            drop_pending(s)
            error[0] = STORE_FAILED
        else:
            error[0] = STORE_NO_MEMORY
    return p


cdef int write_tombstone(StoreBase s, uint64_t seq, int64_t ts) noexcept nogil:
    cdef int error = STORE_OK
    cdef char *p
    if s.env.in_memory:
        return STORE_OK
    p = reserve(s, EMPTY_RECORD, &error)
    if p != NULL:
        block_commit(
            s.last, EMPTY_RECORD, block_encode(&s.env, s.last, p, seq | TBIT, ts, p, 0, p, 0, p, 0))
    return error


cdef int flush_last(StoreBase s) noexcept nogil:
    cdef int rc
    if s.last == NULL or s.last.flushed == s.last.rbytes:
        return -s.env.error
    rc = -s.env.error if s.env.error else block_flush(&s.env, s.last)
    if rc != 0:
        drop_pending(s)
    return rc


cdef void note_replaced(StoreBase s, uint64_t seq, uint64_t offset) noexcept nogil:
    cdef MsgBlock *b = s.last
    cdef Replaced *r = s.replaced + s.n_replaced - 1 if s.n_replaced else NULL
    if r != NULL and (r.block != b.index or r.end <= b.flushed):
        s.n_replaced = 0
    if s.n_replaced == s.replaced_room and not array_grow(&s.replaced, &s.replaced_room, 16, sizeof(Replaced)):
        return
    r = s.replaced + s.n_replaced
    r.seq = seq
    r.offset = offset
    r.end = b.rbytes
    r.block = b.index
    s.n_replaced += 1


cdef void bring_back(StoreBase s, const Replaced *gone) noexcept nogil:
    # Undo the removal of a message: its record is still in the file of its block.
    cdef size_t i = blk_at(s, gone.seq)
    cdef MsgBlock *b = s.blks[i] if i < s.n_blks else NULL
    cdef SimpleState *st
    cdef Record r
    cdef uint32_t k
    cdef bint was_there
    if b == NULL or not b.indexed or gone.offset >= b.rbytes:
        return
    k = slot_from(b, gone.seq)
    if k == b.n_slots or slot_seq(b, k) != gone.seq or b.offs[k] != NO_SLOT:
        return
    if gone.seq < b.first_seq:
        # the sequences between it and the first message are deleted
        if b.msgs and seqset_insert_range(&b.dmap, gone.seq + 1, b.first_seq - 1) < 0:
            return
        if b.msgs == 0 and seqset_insert_range(&b.dmap, gone.seq + 1, b.last_seq) < 0:
            return
        b.first_seq = gone.seq
    elif seqset_delete_range(&b.dmap, gone.seq, gone.seq) < 0:
        return
    b.offs[k] = <uint32_t> gone.offset
    if not block_record(&s.env, b, k, &r):
        return
    if gone.seq == b.first_seq:
        b.first_ts = r.ts
    b.msgs += 1
    b.bytes += r.size
    s.msgs += 1
    s.bytes += r.size
    st = <SimpleState *> stree_insert(&s.subjects, r.subject, r.subject_n, &was_there) if r.subject_n else NULL
    if st == NULL:
        return
    if st.msgs == 0 or r.seq < st.first or st.first_needs_update:
        st.first = r.seq
        st.first_block = b.index
        st.first_needs_update = False
    if st.msgs == 0 or r.seq > st.last:
        st.last = r.seq
        st.last_block = b.index
        st.last_needs_update = False
    st.msgs += 1


cdef void drop_pending(StoreBase s) noexcept nogil:
    # Drop the messages that could not be written, so that the store serves only what its files have. No publisher has
    # an acknowledgement of them yet. Messages that limits removed for them come back.
    cdef MsgBlock *b = s.last
    cdef Record r
    cdef uint32_t k
    cdef uint64_t size
    cdef size_t i
    while b.n_slots and slot_seq(b, b.n_slots - 1) > b.flushed_last:
        k = b.n_slots - 1
        if b.offs[k] != NO_SLOT and block_record(&s.env, b, k, &r):
            size = msg_size(s, &r)
            subject_removed(s, &r)
            s.msgs -= 1
            s.bytes -= size
            b.msgs -= 1
            b.bytes -= size
        b.n_slots -= 1
    if b.flushed_last < b.last_seq:
        if b.dmap.size:
            seqset_delete_range(&b.dmap, b.flushed_last + 1, b.last_seq)
        b.last_seq = s.last_seq = b.flushed_last
        b.last_ts = s.last_ts = b.flushed_ts
    if b.msgs == 0:
        b.first_seq = b.last_seq + 1
        b.first_ts = 0
    if s.msgs == 0:
        s.first_seq = s.last_seq + 1
        s.first_ts = 0
    for i in range(s.n_replaced, 0, -1):
        if s.replaced[i - 1].block == b.index and s.replaced[i - 1].end > b.flushed:
            bring_back(s, &s.replaced[i - 1])
    s.n_replaced = 0
    select_next_first(s)
    block_drop_pending(&s.env, b)
    forget_links(s)


# --- firsts ---

cdef void next_first(MsgBlock *b, uint64_t after) noexcept nogil:
    cdef uint32_t k = slot_from(b, after + 1)
    cdef Record r
    while k < b.n_slots and b.offs[k] == NO_SLOT:
        k += 1
    if k < b.n_slots:
        after = slot_seq(b, k)
        b.first_ts = 0
        if record_parse(block_at(b, b.offs[k]), b.rbytes - b.offs[k], &r) == RECORD_OK:
            b.first_ts = r.ts
    else:
        after = b.last_seq + 1
        b.first_ts = 0
    if b.dmap.size and after > b.first_seq:
        seqset_delete_range(&b.dmap, b.first_seq, after - 1)
    b.first_seq = after


cdef void select_next_first(StoreBase s) noexcept nogil:
    cdef size_t i
    for i in range(s.n_blks):
        if s.blks[i].msgs:
            s.first_seq = s.blks[i].first_seq
            s.first_ts = s.blks[i].first_ts
            return
    s.first_seq = s.last_seq + 1
    s.first_ts = 0


# --- subjects ---

cdef void subject_stored(StoreBase s, SimpleState *st, uint64_t seq, uint32_t block) noexcept nogil:
    cdef MsgBlock *b
    cdef uint32_t k
    if st.msgs and not st.last_needs_update and seq - st.last < NO_SLOT:
        b = s.last if st.last_block == s.last.index else blk_by_index(s, st.last_block)
        if b != NULL and b.indexed:
            k = slot_from(b, st.last)
            if k < b.n_slots and slot_seq(b, k) == st.last:
                b.links[k] = <uint32_t> (seq - st.last)
    st.msgs += 1
    st.last = seq
    st.last_block = block
    st.last_needs_update = False
    if st.msgs == 1:
        st.first = seq
        st.first_block = block
        st.first_needs_update = False


cdef inline bint slot_has(MsgBlock *b, uint32_t k, const char *subject, uint32_t n) noexcept nogil:
    # Return whether the message of slot k is of this subject.
    cdef const char *p
    cdef Record r
    if b.offs[k] == NO_SLOT:
        return False
    p = block_at(b, b.offs[k])
    return (record_parse(p, b.rbytes - b.offs[k], &r) == RECORD_OK and r.subject_n == n
            and same_bytes(r.subject, subject, n))


cdef bint follow(
    StoreBase s, MsgBlock *b, uint32_t k, const char *subject, uint32_t n, uint64_t *seq,
) noexcept nogil:
    cdef uint64_t at = slot_seq(b, k)
    while True:
        seq[0] = at + 1
        if b.links[k] == 0:
            return False
        at += b.links[k]
        b = blk_select(s, at)
        if b == NULL or not b.indexed:
            seq[0] = at
            return False
        k = slot_from(b, at)
        if k == b.n_slots or slot_seq(b, k) != at:
            seq[0] = at
            return False
        if b.offs[k] != NO_SLOT:
            seq[0] = at
            s.near = b
            return slot_has(b, k, subject, n)


cdef void forget_links(StoreBase s) noexcept nogil:
    cdef size_t i
    for i in range(s.n_blks):
        if s.blks[i].links != NULL:
            memset(s.blks[i].links, 0, s.blks[i].slot_room * sizeof(uint32_t))


cdef uint64_t subject_removed(StoreBase s, const Record *r) noexcept nogil:
    cdef SimpleState *st
    cdef MsgBlock *b
    cdef uint32_t k
    if r.subject_n == 0:
        return 0
    st = <SimpleState *> stree_find(&s.subjects, r.subject, r.subject_n)
    if st == NULL:
        return 0
    st.msgs -= 1
    if st.msgs == 0:
        stree_delete(&s.subjects, r.subject, r.subject_n, NULL)
        return 0
    if r.seq == st.first:
        b = blk_select(s, r.seq)
        st.first = r.seq + 1
        st.first_needs_update = True
        if b != NULL and b.indexed:
            k = slot_from(b, r.seq)
            if k < b.n_slots and slot_seq(b, k) == r.seq and follow(s, b, k, r.subject, r.subject_n, &st.first):
                st.first_block = s.near.index
                st.first_needs_update = False
    if r.seq == st.last:
        st.last = r.seq - 1
        st.last_needs_update = True
    if st.msgs == 1:
        # the subject's one message is both its first and its last
        if st.first_needs_update and not st.last_needs_update:
            st.first = st.last
            st.first_block = st.last_block
            st.first_needs_update = False
        elif st.last_needs_update and not st.first_needs_update:
            st.last = st.first
            st.last_block = st.first_block
            st.last_needs_update = False
    return st.msgs


cdef void resolve(StoreBase s, MsgBlock *b) noexcept nogil:
    # Look up, in one pass over the block, the first and last messages of all subjects whose inexact `first` or `last`
    # is in it. After a start from index.db, which has the block alone, that is every subject.
    cdef SimpleState *st
    cdef Record r
    cdef uint32_t k
    b.resolved = True
    for k in range(slot_from(b, b.first_seq), b.n_slots):
        if b.offs[k] == NO_SLOT or not block_record(&s.env, b, k, &r):
            continue
        st = <SimpleState *> stree_find(&s.subjects, r.subject, r.subject_n)
        if st != NULL and st.first_needs_update and st.first_block == b.index and r.seq >= st.first:
            st.first = r.seq
            st.first_needs_update = False
    for k in range(b.n_slots, slot_from(b, b.first_seq), -1):
        if b.offs[k - 1] == NO_SLOT or not block_record(&s.env, b, k - 1, &r):
            continue
        st = <SimpleState *> stree_find(&s.subjects, r.subject, r.subject_n)
        if st != NULL and st.last_needs_update and st.last_block == b.index and r.seq <= st.last:
            st.last = r.seq
            st.last_needs_update = False


cdef uint64_t first_of(StoreBase s, SimpleState *st, const char *subject, uint32_t n) noexcept nogil:
    cdef size_t i
    cdef MsgBlock *b
    cdef uint32_t k
    if not st.first_needs_update:
        return st.first
    s.refused = False
    i = blk_at(s, st.first)
    while i < s.n_blks and s.blks[i].first_seq <= st.last:
        b = s.blks[i]
        i += 1
        if b.msgs == 0 or b.index < st.first_block:
            continue
        if not blk_load(s, b):
            if s.refused:
                return 0
            continue
        if not b.resolved:
            resolve(s, b)
            if not st.first_needs_update:
                return st.first
        for k in range(slot_from(b, max(st.first, b.first_seq)), b.n_slots):
            if slot_has(b, k, subject, n):
                st.first = slot_seq(b, k)
                st.first_block = b.index
                st.first_needs_update = False
                if st.msgs == 1:
                    st.last = st.first
                    st.last_block = b.index
                    st.last_needs_update = False
                return st.first
        st.first = max(st.first, b.last_seq + 1)
    return 0


cdef uint64_t last_of(StoreBase s, SimpleState *st, const char *subject, uint32_t n) noexcept nogil:
    cdef size_t i
    cdef MsgBlock *b
    cdef uint32_t k, low
    if not st.last_needs_update:
        return st.last
    s.refused = False
    i = min(blk_at(s, st.last) + 1, s.n_blks)
    while i > 0 and s.blks[i - 1].last_seq >= st.first:
        i -= 1
        b = s.blks[i]
        if b.msgs == 0 or b.first_seq > st.last:
            continue
        if not blk_load(s, b):
            if s.refused:
                return 0
            continue
        if not b.resolved:
            resolve(s, b)
            if not st.last_needs_update:
                return st.last
        low = slot_from(b, b.first_seq)
        for k in range(slot_from(b, st.last + 1), low, -1):
            if slot_has(b, k - 1, subject, n):
                st.last = slot_seq(b, k - 1)
                st.last_block = b.index
                st.last_needs_update = False
                if st.msgs == 1:
                    st.first = st.last
                    st.first_block = b.index
                    st.first_needs_update = False
                return st.last
        st.last = b.first_seq - 1
    return 0
