"""Recovery; see recovery.pxd."""
from libc.errno cimport EBADMSG
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort
from libc.string cimport memset
from posix.fcntl cimport O_CLOEXEC, O_DIRECTORY, O_RDONLY

import os
import pathlib
import re
import shutil

from gnats.store.format.oldindex import read_old_index

from gnats.includes.arrays cimport array_grow
from gnats.store.base cimport (
    LostNote,
    STORE_FAILED,
    STORE_NO_MEMORY,
    STORE_OK,
    StoreBase,
    blk_add,
    blk_by_index,
    blk_forget,
    blk_load,
    flush_last,
    note_lost,
    roll,
    select_next_first,
    write_tombstone,
)
from gnats.store.block cimport (
    MAX_GAP,
    MsgBlock,
    block_alloc,
    block_cut,
    block_open_body,
    block_open_last,
    block_push_slot,
    block_set_aside,
    block_unlink,
    block_unload,
    record_resync,
)
from gnats.store.expiry cimport header_ttl, ttl_scan, ttl_stored
from gnats.store.format.record cimport MESSAGE, RECORD_OK, TOMBSTONE, Record, record_decode, record_stored_hash
from gnats.store.index.seqset cimport seqset_delete, seqset_insert, seqset_insert_range
from gnats.store.index.stree cimport SimpleState, stree_insert
from gnats.store.removing cimport drop_empty, enforce_bytes, enforce_msgs, enforce_per_subject, remove_msg
from gnats.store.scheduling cimport schedule_scan, schedule_settle, schedule_stored
from gnats.store.statefile cimport load_index, load_schedules, load_ttls

cdef enum:
    KEEP_LOADED = 64          # blocks that stay loaded after the scan

BLOCK_FILE = re.compile(r"([1-9][0-9]{0,9})\.blk")


cdef struct Scan:
    uint64_t *tombs           # sequences of the tombstones of all blocks
    size_t n_tombs, room
    # of the block that was scanned last
    uint64_t damage           # bytes that are no records
    uint64_t tail             # those of them after the last record


cdef int note_tomb(Scan *scan, uint64_t seq) noexcept nogil:
    if scan.n_tombs == scan.room and not array_grow(&scan.tombs, &scan.room, 1024, sizeof(uint64_t)):
        return -1
    scan.tombs[scan.n_tombs] = seq
    scan.n_tombs += 1
    return 0


cdef int advance(MsgBlock *b, Record *r, uint64_t last) noexcept nogil:
    # Extend the block to this record; the sequences between it and `last` are deleted ones.
    if last and r.seq != last + 1 and b.msgs and seqset_insert_range(&b.dmap, last + 1, r.seq - 1) < 0:
        return -1
    b.last_seq = r.seq
    if r.ts:
        b.last_ts = r.ts    # a record that was erased has no time
    return 0


cdef int scan_block(StoreBase s, MsgBlock *b, size_t at, Scan *scan) noexcept nogil:
    # Add the records from offset `at` on to a block's counts and to the store's subjects; a block of which nothing is
    # known gets its slots, too. 0; -errno: the file cannot be read; STORE_NO_MEMORY.
    cdef const char *p
    cdef size_t n, resumed
    cdef Record r
    cdef SimpleState *st
    cdef uint64_t last = b.last_seq, tomb = 0
    cdef int64_t tomb_ts = 0, ttl
    cdef bint damaged = False, whole = b.first_seq == 0, was_there
    cdef int rc = block_open_body(&s.env, b), bad
    scan.damage = scan.tail = 0
    if rc != 0:
        return rc
    p = b.region.base
    n = b.rbytes
    if whole:
        b.resolved = True
    while at < n:
        bad = record_decode(p + at, n - at, &b.key, &r)
        if bad != RECORD_OK or (r.kind != TOMBSTONE and last and r.seq > last and (
                r.seq - last > MAX_GAP or r.seq - last + b.dmap.size > s.most_gaps)):
            resumed = record_resync(&b.key, p, n, at, last)
            scan.damage += resumed - at
            if resumed >= n:
                scan.tail = n - at
                break
            at = resumed
            damaged = True
            continue
        b.checksum = record_stored_hash(p + at, &r)
        if r.kind == TOMBSTONE:
            if note_tomb(scan, r.seq) != 0:
                return STORE_NO_MEMORY
            if r.seq > tomb:
                tomb = r.seq
                tomb_ts = r.ts
        elif r.seq > last:
            if damaged and last:
                note_lost(s, b.index, NULL, last + 1, r.seq - 1, r.seq - last - 1)
            damaged = False
            if advance(b, &r, last) != 0:
                return STORE_NO_MEMORY
            if b.low_seq == 0:
                b.low_seq = r.seq
            last = r.seq
            if r.kind != MESSAGE:
                if b.msgs == 0:
                    b.first_seq = last + 1
                    b.first_ts = 0
                elif seqset_insert(&b.dmap, last) < 0:
                    return STORE_NO_MEMORY
            else:
                if whole and block_push_slot(b, last, <uint32_t> at) != 0:
                    return STORE_NO_MEMORY
                if b.msgs == 0:
                    b.first_seq = last
                    b.first_ts = r.ts
                b.msgs += 1
                b.bytes += r.size
                if r.hdr_n:
                    ttl = header_ttl(r.hdr, r.hdr_n)
                    if ttl > 0:
                        b.ttls += 1
                        ttl_stored(s, last, r.ts, ttl)
                schedule_stored(s, b, &r)
                if r.subject_n:
                    st = <SimpleState *> stree_insert(&s.subjects, r.subject, r.subject_n, &was_there)
                    if st == NULL:
                        return STORE_NO_MEMORY
                    if st.msgs == 0:
                        st.first = last
                        st.first_block = b.index
                    st.msgs += 1
                    st.last = last
                    st.last_block = b.index
                    st.last_needs_update = False
        at += r.size
    b.indexed = whole
    if b.low_seq == 0:
        b.low_seq = tomb + 1
    if b.msgs == 0:
        # The block says only which sequence is next.
        if b.first_seq:
            b.last_seq = b.first_seq - 1
        elif tomb:
            b.first_seq = tomb + 1
            b.last_seq = tomb
            b.last_ts = tomb_ts
    return 0


cdef void add_block_state(StoreBase s, MsgBlock *b) noexcept nogil:
    # Add a block, which follows those added before, to the counts of the store.
    if s.msgs == 0:
        s.first_seq = s.last_seq = 0
        s.first_ts = s.last_ts = 0
    if s.first_seq == 0 or (b.first_seq < s.first_seq and b.first_ts != 0):
        s.first_seq = b.first_seq
        s.first_ts = b.first_ts
    if b.last_seq >= s.last_seq:
        s.last_seq = b.last_seq
        s.last_ts = b.last_ts
    s.msgs += b.msgs
    s.bytes += b.bytes
    if b.msgs == 0:
        b.first_seq = s.last_seq + 1
        b.first_ts = 0
        b.last_seq = s.last_seq
        b.last_ts = s.last_ts


cdef int compare(const void *a, const void *b) noexcept nogil:
    cdef uint64_t x = (<const uint64_t *> a)[0], y = (<const uint64_t *> b)[0]
    return (x > y) - (x < y)


cdef int choose_last(StoreBase s) except -1:
    # Go on storing into the last block. Roll when it is compressed or damaged, or when later sequences are known.
    cdef MsgBlock *b = s.blks[s.n_blks - 1] if s.n_blks else NULL
    cdef bint ahead = s.last_seq > (b.last_seq if b != NULL else 0)
    cdef int error = STORE_OK
    s.last = b
    if b == NULL:
        s.first_seq = s.last_seq + 1
    else:
        b.flushed_last = b.last_seq
        b.flushed_ts = b.last_ts
        select_next_first(s)
    if b == NULL or ahead or not b.last or b.damaged or (b.packed and b.seal_key == NULL) or not blk_load(s, b):
        error = roll(s)
        if error == STORE_OK and ahead:
            error = write_tombstone(s, s.last_seq, s.last_ts)
    if error == STORE_NO_MEMORY:
        raise MemoryError
    if error != STORE_OK:
        raise OSError(s.env.error, os.strerror(s.env.error), s.env.what.decode())
    return 0


cdef int apply_tombs(StoreBase s, Scan *scan) noexcept nogil:
    cdef size_t i
    cdef int error
    if scan.n_tombs == 0:
        return STORE_OK
    qsort(scan.tombs, scan.n_tombs, sizeof(uint64_t), compare)
    for i in range(scan.n_tombs):
        error = remove_msg(s, scan.tombs[i], False, True)
        if error == STORE_FAILED or error == STORE_NO_MEMORY:
            return error
        # a message that was deleted is not lost
        if seqset_delete(&s.lost, scan.tombs[i]) and s.lost.size == 0:
            s.lost_bytes = s.n_notes = 0
    return STORE_OK


cdef int finish_purge(str directory) except -1:
    # A purge moves msgs/ aside as a whole; a server that ended during a purge left one of these directories.
    msgs = os.path.join(directory, "msgs")
    new = os.path.join(directory, "__new_msgs__")
    old = os.path.join(directory, "__msgs__")
    if os.path.isdir(new):
        names = os.listdir(new)
        if any(name.endswith(".blk") for name in names):
            if os.path.isdir(msgs):
                shutil.rmtree(msgs)
            os.rename(new, msgs)
        else:
            for name in names:
                # The new block is still in msgs/, with a tombstone at most, and needs this key.
                if name.endswith(".key") and os.path.exists(os.path.join(msgs, name.removesuffix(".key") + ".blk")):
                    os.rename(os.path.join(new, name), os.path.join(msgs, name))
            shutil.rmtree(new)
    if os.path.isdir(old):
        shutil.rmtree(old)
    return 0


def settle_purge(str directory not None) -> None:
    """Finish an interrupted purge in the directory of a stream. Raises OSError."""
    finish_purge(directory)


cdef object report(StoreBase s, Scan *scan, MsgBlock *b, object warn):
    s.lost_bytes += scan.damage
    b.damaged = True
    warn(f"block {b.index}: {scan.damage} bytes are damaged")


cdef int scan_one(StoreBase s, MsgBlock *b, size_t start, bint last, Scan *scan, object warn) except -1:
    # Scan a block from offset `start` on and deal with its damage. Free a block of which nothing can be read.
    cdef int rc = 0
    if last:
        block_unload(&s.env, b)
        rc = block_open_last(&s.env, b)
    if rc == 0:
        with nogil:
            rc = scan_block(s, b, start, scan)
    if rc == STORE_NO_MEMORY:
        raise MemoryError
    if rc == -EBADMSG:
        warn(f"block {b.index} is compressed and damaged; its file is now {b.index}.blk.bad")
        block_set_aside(&s.env, b)
        blk_forget(s, b)
        return 0
    if rc < 0:
        raise OSError(-rc, os.strerror(-rc), f"{b.index}.blk")
    if scan.tail and last and scan.tail == scan.damage and not b.packed:
        # The server ended while it wrote this record: no publisher has an acknowledgement of it.
        warn(f"block {b.index}: {scan.tail} bytes of an incomplete record at the end are cut off")
        if block_cut(&s.env, b, b.rbytes - scan.tail) < 0:
            raise OSError(s.env.error, os.strerror(s.env.error), f"{b.index}.blk")
        s.lost_bytes += scan.tail
    elif scan.damage:
        report(s, scan, b, warn)
    if b.first_seq == 0:
        if b.rbytes:
            warn(f"block {b.index}: no record of it can be read; its file is now {b.index}.blk.bad")
            block_set_aside(&s.env, b)
        else:
            block_unlink(&s.env, b)
        blk_forget(s, b)
    elif s.env.loaded > KEEP_LOADED and not last:
        block_unload(&s.env, b)
    return 0


cdef int scan_all(StoreBase s, list indices, int64_t behind, object warn) except -1:
    # Scan all blocks. behind: offset in the last block of s.blks at which index.db ends; negative: there is no index.
    cdef Scan scan
    cdef MsgBlock *b
    cdef uint64_t known_last = s.last_seq
    cdef int64_t known_ts = s.last_ts
    cdef uint32_t index
    cdef size_t i
    cdef int error
    memset(&scan, 0, sizeof(scan))
    try:
        if behind >= 0:
            b = s.blks[s.n_blks - 1]
            indices = indices[indices.index(b.index) + 1:]
            scan_one(s, b, behind, not indices, &scan, warn)
        for position, index in enumerate(indices):
            b = block_alloc(&s.env, index)
            if b == NULL or blk_add(s, b) != 0:
                raise MemoryError
            scan_one(s, b, 0, position == len(indices) - 1, &scan, warn)
        s.first_seq = s.last_seq = s.msgs = s.bytes = 0
        for i in range(s.n_blks):
            add_block_state(s, s.blks[i])
        if s.last_seq < known_last:
            # never give a sequence to two messages
            s.last_seq = known_last
            s.last_ts = known_ts
        choose_last(s)
        with nogil:
            error = apply_tombs(s, &scan)
        if error == STORE_NO_MEMORY:
            raise MemoryError
        if error != STORE_OK:
            raise OSError(s.env.error, os.strerror(s.env.error), s.env.what.decode())
    finally:
        free(scan.tombs)
    return 0


cdef int enforce(StoreBase s) except -1:
    cdef int error
    with nogil:
        # The limit per subject first: messages that it had removed before the start must not count for the others.
        error = enforce_per_subject(s)
        if error == STORE_OK:
            error = enforce_msgs(s)
        if error == STORE_OK:
            error = enforce_bytes(s)
        drop_empty(s)
        if error == STORE_OK and flush_last(s) != 0:
            error = STORE_FAILED
    if error == STORE_NO_MEMORY:
        raise MemoryError
    if error == STORE_FAILED:
        raise OSError(s.env.error, os.strerror(s.env.error), s.env.what.decode())
    return 0


cdef object recover_ttls(StoreBase s, object warn):
    # Fill the wheel, unless the scan of all blocks has done so.
    cdef uint64_t high
    if s.n_blks and s.blks[0].resolved:
        return
    high = load_ttls(s, warn)
    with nogil:
        ttl_scan(s, max(high, s.first_seq))


cdef int remove_as_noted(StoreBase s, object msgs, list indices) except -1:
    # nats-server before 2.10 noted removals beside a block (N.idx). Remove these messages again, which notes it in the
    # blocks.
    cdef MsgBlock *b
    cdef uint64_t seq
    cdef int error
    gone = []
    for index in indices:
        b = blk_by_index(s, index)
        noted = read_old_index(msgs / f"{index}.idx") if b != NULL and b.msgs else None
        if noted is None or noted.checksum != b.checksum:
            continue
        gone += range(b.first_seq, min(noted.first, b.last_seq + 1))
        gone += noted.deleted
    for seq in gone:
        error = remove_msg(s, seq, False, False)
        if error == STORE_FAILED:
            raise OSError(s.env.error, os.strerror(s.env.error), s.env.what.decode())
        if error == STORE_NO_MEMORY:
            raise MemoryError
    return 0


cdef object recover(StoreBase s, str directory, object warn):
    cdef const LostNote *note
    cdef uint64_t known, high
    cdef int64_t behind
    cdef size_t i
    finish_purge(directory)
    msgs = os.path.join(directory, "msgs")
    made = not os.path.isdir(msgs)
    if made:
        os.makedirs(msgs, mode=0o700)
    s.env.storefd = os.open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    if made and s.env.sync_always:
        os.fsync(s.env.storefd)
    s.env.dirfd = os.open(msgs, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    indices = []
    for name in os.listdir(msgs):
        match = BLOCK_FILE.fullmatch(name)
        if match and int(match[1]) < 2**32 - 1:
            indices.append(int(match[1]))
        elif name.endswith(".blk.tmp"):
            os.unlink(os.path.join(msgs, name))    # of an interrupted rewrite: N.blk is still there
    indices.sort()
    behind = load_index(s, indices, warn)
    known = s.indexed_seq = s.last_seq if behind >= 0 else 0
    # before the records after the index are scanned: their schedules are newer
    high = load_schedules(s, warn) if s.limits.allow_schedules and behind >= 0 else 0
    scan_all(s, indices, behind, warn)
    if s.limits.allow_schedules:
        with nogil:
            if high <= known:
                schedule_scan(s, max(high, s.first_seq))
            schedule_settle(s)
        s.tracks_schedules = True
    if s.limits.allow_ttl:
        recover_ttls(s, warn)
    if not s.index_written:
        s.dirty += s.last_seq > 0    # have write_state() write an index
        remove_as_noted(s, pathlib.Path(msgs), indices)
    enforce(s)
    for i in range(s.n_notes):
        note = &s.notes[i]
        warn(f"block {note.block}: {note.n} messages are lost to damage, sequences {note.first} to {note.last}")
    s.n_notes = 0
    for name in os.listdir(msgs):
        # Files of nats-server before 2.10, which are wrong once a message is stored.
        if name.endswith((".idx", ".fss")):
            os.unlink(os.path.join(msgs, name))
