"""index.db, thw.db and sched.db; see statefile.pxd."""
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.errno cimport ENOENT, errno
from libc.stddef cimport size_t
from libc.stdint cimport UINT32_MAX, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

import os

from gnats.store.base cimport STORE_NO_MEMORY, STORE_OK, StoreBase, blk_add, blk_forget, note_lost
from gnats.store.block cimport BODY_NONE, MsgBlock, block_alloc, block_free, block_open_body
from gnats.store.expiry cimport ttls_high
from gnats.store.format.codec cimport IndexBlock, IndexState, index_decode, index_encode, index_free
from gnats.store.format.highway cimport HighwayKey, highway, highway_key_of
from gnats.store.format.record cimport (
    EMPTY_RECORD,
    MAX_SEQ,
    RECORD_BAD,
    RECORD_SHORT,
    Record,
    record_parse,
    record_stored_hash,
)
from gnats.store.index.schedules cimport schedules_decode, schedules_encode, schedules_room
from gnats.store.index.seqset cimport SeqSet
from gnats.store.index.stree cimport STreeIter, SimpleState, stree_clear, stree_end, stree_iter, stree_next
from gnats.store.index.wheel cimport wheel_clear, wheel_decode, wheel_encode, wheel_room
from gnats.store.scheduling cimport schedules_high

cdef extern from "<unistd.h>" nogil:
    int unlinkat(int dirfd, const char *path, int flags)


# --- writing ---

cdef int encode_index(StoreBase s, StateFile *out) noexcept nogil:
    cdef IndexState state
    cdef IndexBlock *at
    cdef MsgBlock *b
    cdef HighwayKey key
    cdef uint8_t *sealed
    cdef uint64_t sum64
    cdef size_t i
    cdef int rc
    state.msgs = s.msgs
    state.bytes = s.bytes
    state.first_seq = s.first_seq
    state.last_seq = s.last_seq
    state.first_ts = s.first_ts
    state.last_ts = s.last_ts
    state.subjects = &s.subjects
    state.n_blocks = s.n_blks
    state.last_block = s.last.index
    state.last_checksum = s.last.checksum if s.last.rbytes else 0
    if s.rescan:
        # the checksum of no record: the next start takes only the last sequence from this index
        state.last_checksum = ~state.last_checksum
    state.blocks = <IndexBlock *> calloc(s.n_blks, sizeof(IndexBlock))
    if state.blocks == NULL:
        return STORE_NO_MEMORY
    for i in range(s.n_blks):
        b = s.blks[i]
        at = &state.blocks[i]
        at.index = b.index
        at.bytes = b.bytes
        at.first_seq = b.first_seq
        at.last_seq = b.last_seq
        at.first_ts = b.first_ts
        at.last_ts = b.last_ts
        at.ttls = b.ttls
        at.schedules = b.schedules
        at.deleted = b.dmap
    rc = index_encode(&state, 0, 8, &out.at, &out.n)
    free(state.blocks)
    if rc != 0:
        out.at = NULL
        return STORE_NO_MEMORY
    if s.env.sealer != NULL:
        sealed = <uint8_t *> malloc(out.n + s.env.sealer.overhead + 8)
        if sealed == NULL or s.env.sealer.seal(s.env.sealer, <char *> out.at, out.n, <char *> sealed) != 0:
            free(sealed)
            return STORE_NO_MEMORY
        free(out.at)
        out.at = sealed
        out.n += s.env.sealer.overhead
    highway_key_of(&key, s.env.name, s.env.name_n)
    sum64 = highway(&key, out.at, out.n)
    memcpy(out.at + out.n, &sum64, 8)
    out.n += 8
    return STORE_OK


cdef int encode_state(StoreBase s, StateFiles *out) noexcept nogil:
    cdef int rc
    memset(out, 0, sizeof(StateFiles))
    rc = encode_index(s, &out.index)
    if rc == STORE_OK and s.limits.allow_ttl:
        out.ttls.at = <uint8_t *> malloc(wheel_room(&s.ttls))
        if out.ttls.at == NULL:
            rc = STORE_NO_MEMORY
        else:
            out.ttls.n = wheel_encode(&s.ttls, ttls_high(s), out.ttls.at)
    if rc == STORE_OK and s.limits.allow_schedules:
        out.schedules.at = <uint8_t *> malloc(schedules_room(&s.schedules))
        if out.schedules.at == NULL:
            rc = STORE_NO_MEMORY
        else:
            out.schedules.n = schedules_encode(&s.schedules, schedules_high(s), out.schedules.at)
    if rc != STORE_OK:
        state_free(out)
    return rc


cdef void state_free(StateFiles *files) noexcept nogil:
    free(files.index.at)
    free(files.ttls.at)
    free(files.schedules.at)
    memset(files, 0, sizeof(StateFiles))


cdef void invalidate(StoreBase s) noexcept nogil:
    s.invalidations += 1
    if s.index_written:
        s.index_written = unlinkat(s.env.dirfd, b"index.db", 0) != 0 and errno != ENOENT
        unlinkat(s.env.dirfd, b"thw.db", 0)
        unlinkat(s.env.dirfd, b"sched.db", 0)


# --- reading ---

cdef bytes read_file(StoreBase s, str name, object warn):
    # None: there is no such file, or it cannot be read.
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=s.env.dirfd)
        with os.fdopen(fd, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as err:
        warn(f"{name} cannot be read: {err}")
        return None


cdef int take_blocks(StoreBase s, const IndexState *state) except -1:
    # Fill s.blks from an index. 0: the index contradicts itself.
    cdef MsgBlock *b
    cdef const IndexBlock *at
    cdef uint64_t msgs = 0, size = 0, low = 1
    cdef size_t i
    if state.last_seq > MAX_SEQ:
        return 0
    for i in range(state.n_blocks):
        at = &state.blocks[i]
        if at.last_seq > MAX_SEQ or at.first_seq == 0 or at.first_seq > at.last_seq + 1 or at.last_seq + 1 < low:
            return 0
        if at.last_seq + 1 - at.first_seq < at.deleted.size:
            return 0
        # Offsets in a block have 32 bits, which limits the number of its messages.
        if at.last_seq + 1 - at.first_seq - at.deleted.size > UINT32_MAX // EMPTY_RECORD:
            return 0
        b = block_alloc(&s.env, at.index)
        if b == NULL or blk_add(s, b) != 0:
            raise MemoryError
        b.first_seq = at.first_seq
        b.last_seq = at.last_seq
        b.first_ts = at.first_ts
        b.last_ts = at.last_ts
        b.low_seq = low
        b.msgs = at.last_seq + 1 - at.first_seq - at.deleted.size
        b.bytes = at.bytes
        b.ttls = at.ttls
        b.schedules = at.schedules
        if b.msgs:
            b.dmap = at.deleted
            memset(<void *> &at.deleted, 0, sizeof(at.deleted))
        else:
            b.first_seq = b.last_seq + 1
            b.first_ts = 0
        low = b.last_seq + 1
        msgs += b.msgs
        size += b.bytes
    return msgs == state.msgs and size == state.bytes


cdef bint place_subjects(StoreBase s, uint64_t msgs) noexcept nogil:
    # An index has the first and the last block of each subject: sets bounds for its first and last messages, which
    # first_of() and last_of() look up. False: the counts of the subjects do not fit.
    cdef STreeIter it
    cdef SimpleState *st
    cdef size_t low, high, mid
    cdef uint64_t total = 0
    cdef bint good = True
    stree_iter(&it, &s.subjects, NULL, 0)
    while good and stree_next(&it):
        st = <SimpleState *> it.value
        total += st.msgs
        st.first_needs_update = st.last_needs_update = True
        low = 0
        high = s.n_blks
        while low < high:
            mid = low + (high - low) // 2
            if s.blks[mid].index < st.first_block:
                low = mid + 1
            else:
                high = mid
        st.first = s.blks[low].first_seq if low < s.n_blks else 0
        while low < s.n_blks and s.blks[low].index < st.last_block:
            low += 1
        st.last = s.blks[min(low, s.n_blks - 1)].last_seq if s.n_blks else 0
        good = st.msgs > 0
    good = good and not it.failed
    stree_end(&it)
    # a message without a subject is counted in no subject
    return good and total <= msgs


cdef int64_t find_end(StoreBase s, MsgBlock *b, uint64_t checksum) noexcept nogil:
    # The offset at which the record with this checksum ends in the last block of an index; -1: there is no such record.
    cdef uint64_t at = 0
    cdef int64_t end = -1
    cdef Record r
    cdef int bad
    cdef uint64_t sum64 = 0
    if block_open_body(&s.env, b) != 0:
        return -1
    if b.rbytes >= 8:
        memcpy(&sum64, b.region.base + b.rbytes - 8, 8)
        if sum64 == checksum:
            b.checksum = checksum
            return b.rbytes
    if checksum == 0:
        return 0 if b.msgs == 0 else -1
    while at < b.rbytes:
        bad = record_parse(b.region.base + at, b.rbytes - at, &r)
        if bad == RECORD_SHORT or bad == RECORD_BAD:
            break
        if record_stored_hash(b.region.base + at, &r) == checksum:
            end = at + r.size
        at += r.size
    b.checksum = checksum
    return end


cdef void forget_all(StoreBase s) noexcept nogil:
    while s.n_blks:
        blk_forget(s, s.blks[s.n_blks - 1])
    stree_clear(&s.subjects)
    s.msgs = s.bytes = 0


cdef object note_missing(StoreBase s, const IndexState *state, list indices):
    # Count the messages of missing block files as lost, if the last block still ends as the index says and nothing
    # expires: otherwise the store itself may have removed the files.
    cdef const IndexBlock *at
    cdef MsgBlock *b
    cdef size_t i
    cdef uint64_t n
    if s.limits.max_age > 0 or s.limits.allow_ttl or indices[len(indices) - 1:] != [state.last_block]:
        return
    b = block_alloc(&s.env, state.last_block)
    if b == NULL:
        raise MemoryError
    if find_end(s, b, state.last_checksum) == <int64_t> b.rbytes and b.kind != BODY_NONE:
        for i in range(state.n_blocks):
            at = &state.blocks[i]
            if at.index not in indices and 0 < at.first_seq <= at.last_seq:
                n = at.last_seq + 1 - at.first_seq - at.deleted.size
                note_lost(s, at.index, <SeqSet *> &at.deleted, at.first_seq, at.last_seq, n)
                s.lost_bytes += at.bytes
    block_free(&s.env, b)


cdef int64_t load_index(StoreBase s, list indices, object warn) except -2:
    cdef IndexState state
    cdef HighwayKey key
    cdef bytes data
    cdef bytearray plain
    cdef const uint8_t *p
    cdef uint64_t sum64 = 0
    cdef size_t n
    cdef int64_t behind = -1
    cdef MsgBlock *b
    data = read_file(s, "index.db", warn)
    if data is None:
        return -1
    s.index_written = True
    p = <const uint8_t *> <const char *> data
    n = len(data)
    if n >= 10:
        memcpy(&sum64, p + n - 8, 8)
        highway_key_of(&key, s.env.name, s.env.name_n)
    if n < 10 or highway(&key, p, n - 8) != sum64:
        warn("index.db is damaged; all records are read")
        return -1
    memset(&state, 0, sizeof(state))
    state.subjects = &s.subjects
    n -= 8
    if s.env.sealer != NULL:
        if n < s.env.sealer.overhead:
            return -1
        plain = bytearray(n - s.env.sealer.overhead)
        if s.env.sealer.unseal(s.env.sealer, <const char *> p, n, PyByteArray_AS_STRING(plain)) != 0:
            warn("index.db is not encrypted with the stream's key; all records are read")
            return -1
        p = <const uint8_t *> PyByteArray_AS_STRING(plain)
        n = len(plain)
    if index_decode(&state, p, n) != 0:
        warn("index.db is not understood; all records are read")
        return -1
    try:
        known = [state.blocks[i].index for i in range(state.n_blocks)]
        if known != sorted(set(known)) or not known or known[len(known) - 1] != state.last_block:
            warn("index.db is inconsistent; all records are read")
        elif [index for index in indices if index <= state.last_block] != known:
            warn("index.db knows other blocks; all records are read")
            note_missing(s, &state, indices)
        elif not take_blocks(s, &state) or not place_subjects(s, state.msgs):
            warn("index.db is inconsistent; all records are read")
        else:
            b = s.blks[s.n_blks - 1]
            behind = find_end(s, b, state.last_checksum)
            if behind < 0:
                warn("index.db is of another time; all records are read")
            s.last_seq = state.last_seq
            s.last_ts = state.last_ts
    finally:
        index_free(&state)
        if behind < 0:
            forget_all(s)
    return behind


cdef uint64_t load_ttls(StoreBase s, object warn) except *:
    cdef uint64_t high = 0
    cdef bytes data = read_file(s, "thw.db", warn)
    if data is None:
        return 0
    if wheel_decode(&s.ttls, <const uint8_t *> <const char *> data, len(data), &high) != 0:
        warn("thw.db is damaged; messages are searched for TTLs")
        wheel_clear(&s.ttls)
        return 0
    return high


cdef uint64_t load_schedules(StoreBase s, object warn) except *:
    cdef uint64_t high = 0
    cdef bytes data = read_file(s, "sched.db", warn)
    if data is None:
        return 0
    if schedules_decode(&s.schedules, <const uint8_t *> <const char *> data, len(data), &high) != 0:
        warn("sched.db is damaged; messages are searched for schedules")
        return 0
    return high
