"""Purge and truncate; see purging.pxd."""
from libc.errno cimport EIO, ENOENT, errno
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from posix.fcntl cimport O_CLOEXEC, O_DIRECTORY, O_RDONLY
from posix.unistd cimport close

from gnats.includes.arrays cimport array_grow
from gnats.store.base cimport (
    STORE_CLOSED,
    STORE_DAMAGED,
    STORE_FAILED,
    STORE_NO_MEMORY,
    STORE_OK,
    blk_add,
    blk_at,
    blk_load,
    flush_last,
    forget_links,
    msg_size,
    select_next_first,
    subject_removed,
)
from gnats.store.block cimport (
    NO_SLOT,
    MsgBlock,
    block_at,
    block_commit,
    block_create,
    block_encode,
    block_flush,
    block_free,
    block_record,
    block_replace,
    block_reserve,
    block_sync,
    block_unlink,
    env_fail,
    env_sync,
    env_sync_failed,
    record_resync,
    slot_from,
    slot_of,
)
from gnats.store.expiry cimport ttl_clear, ttl_removed
from gnats.store.format.record cimport (
    EBIT,
    EMPTY_RECORD,
    RECORD_BAD,
    RECORD_SHORT,
    TBIT,
    TOMBSTONE,
    Record,
    record_parse,
)
from gnats.store.index.schedules cimport schedules_clear
from gnats.store.index.seqset cimport seqset_delete_range, seqset_prepare_cut
from gnats.store.index.stree cimport STreeIter, SimpleState, stree_clear, stree_end, stree_iter, stree_next
from gnats.store.scheduling cimport schedule_removed
from gnats.store.statefile cimport invalidate

cdef extern from "<dirent.h>" nogil:
    ctypedef struct DIR:
        pass
    cdef struct dirent:
        char d_name[256]
    DIR *fdopendir(int fd)
    dirent *readdir(DIR *d)
    int closedir(DIR *d)

cdef extern from "<fcntl.h>" nogil:
    int openat(int dirfd, const char *path, int flags, ...)
    enum:
        AT_REMOVEDIR

cdef extern from "<stdio.h>" nogil:
    int renameat(int olddir, const char *old, int newdir, const char *new)

cdef extern from "<sys/stat.h>" nogil:
    int mkdirat(int dirfd, const char *path, int mode)

cdef extern from "<unistd.h>" nogil:
    int unlinkat(int dirfd, const char *path, int flags)


cdef bint remove_dir(int storefd, const char *name) noexcept nogil:
    # Remove a directory that has files only. False: there is none, or it could not be removed.
    cdef int fd = openat(storefd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    cdef DIR *d
    cdef dirent *entry
    if fd < 0:
        return False
    d = fdopendir(fd)
    if d == NULL:
        close(fd)
        return False
    while True:
        entry = readdir(d)
        if entry == NULL:
            break
        if entry.d_name[0] != c'.':
            unlinkat(fd, entry.d_name, 0)
    closedir(d)
    return unlinkat(storefd, name, AT_REMOVEDIR) == 0


cdef bint remove_purged(int storefd) noexcept nogil:
    return storefd >= 0 and remove_dir(storefd, b"__msgs__")


cdef int move_block(int fromfd, int tofd, uint32_t index) noexcept nogil:
    # Move a block's files to another directory, N.blk last. 0 or an errno.
    cdef char name[32]
    snprintf(name, sizeof(name), "%u.key", index)
    if renameat(fromfd, name, tofd, name) != 0 and errno != ENOENT:
        return errno
    snprintf(name, sizeof(name), "%u.blk", index)
    return errno if renameat(fromfd, name, tofd, name) != 0 else 0


cdef int exchange_dirs(int storefd) noexcept nogil:
    # Rename msgs to __msgs__ and __new_msgs__ to msgs: both or none. 0 or an errno.
    cdef int err
    if renameat(storefd, b"msgs", storefd, b"__msgs__") != 0:
        return errno
    if renameat(storefd, b"__new_msgs__", storefd, b"msgs") == 0:
        return 0
    err = errno
    renameat(storefd, b"__msgs__", storefd, b"msgs")
    return err


cdef int swap_dirs(StoreBase s, uint32_t index) noexcept nogil:
    # Make a msgs/ with the new block alone, and move the old one aside. N.blk moves last: recovery finishes the purge
    # if __new_msgs__ has one. 0, or an errno: nothing has changed.
    cdef int storefd = s.env.storefd, newfd, rc
    remove_dir(storefd, b"__new_msgs__")
    remove_dir(storefd, b"__msgs__")
    if mkdirat(storefd, b"__new_msgs__", 0o700) != 0:
        return errno
    newfd = openat(storefd, b"__new_msgs__", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    if newfd < 0:
        rc = errno
        unlinkat(storefd, b"__new_msgs__", AT_REMOVEDIR)
        return rc
    rc = move_block(s.env.dirfd, newfd, index)
    if rc == 0 and s.env.sync_always:
        rc = env_sync(&s.env, newfd, True)
    if rc == 0:
        rc = exchange_dirs(storefd)
    if rc:
        move_block(newfd, s.env.dirfd, index)
        close(newfd)
        unlinkat(storefd, b"__new_msgs__", AT_REMOVEDIR)
        return rc
    close(s.env.dirfd)
    s.env.dirfd = newfd
    return 0


cdef int purge_all(StoreBase s, uint64_t first, bint reset) noexcept nogil:
    cdef uint64_t next_seq = s.last_seq + 1, last = s.last_seq
    cdef MsgBlock *b
    cdef char *p
    cdef size_t i
    cdef int rc, unsynced = 0
    if first > next_seq:
        next_seq = first
        last = first - 1
    if reset:
        next_seq = 1
        last = 0
    b = block_create(&s.env, s.last.index + 1 if s.last != NULL else 1, next_seq)
    if b == NULL:
        return STORE_FAILED if s.env.error else STORE_NO_MEMORY
    b.last_ts = b.flushed_ts = s.last_ts
    if not s.env.in_memory:
        if last:
            p = block_reserve(&s.env, b, EMPTY_RECORD)
            if p == NULL:
                block_unlink(&s.env, b)
                block_free(&s.env, b)
                return STORE_NO_MEMORY
            block_commit(
                b, EMPTY_RECORD, block_encode(&s.env, b, p, last | TBIT, s.last_ts, p, 0, p, 0, p, 0))
        rc = block_flush(&s.env, b)
        if rc == 0 and s.env.sync_always:
            rc = block_sync(&s.env, b)
        if rc != 0:
            block_unlink(&s.env, b)
            block_free(&s.env, b)
            return STORE_FAILED
        rc = swap_dirs(s, b.index)
        if rc != 0:
            env_fail(&s.env, rc, "purge", b.index)
            block_unlink(&s.env, b)
            block_free(&s.env, b)
            return STORE_FAILED
        if s.env.sync_always:
            unsynced = env_sync(&s.env, s.env.storefd, True)
    for i in range(s.n_blks):
        block_free(&s.env, s.blks[i])
    s.n_blks = 0
    s.near = NULL
    s.last = b
    blk_add(s, b)    # cannot fail where there was a block before: the array has room
    stree_clear(&s.subjects)
    ttl_clear(s)
    schedules_clear(&s.schedules)
    s.schedules_from = 0
    s.msgs = s.bytes = 0
    s.first_seq = next_seq
    s.last_seq = last
    s.first_ts = 0
    if reset:
        s.last_ts = 0
    s.dirty += 1
    if unsynced:
        # The purge is done, but a loss of power may undo it.
        env_sync_failed(&s.env, unsynced, b.index)
        return STORE_FAILED
    return STORE_OK


cdef struct Mark:
    uint64_t seq
    int64_t ts


cdef struct Marks:
    Mark *at
    size_t n, room


cdef int gather_tombs(Marks *m, MsgBlock *b, uint64_t most) noexcept nogil:
    # Add a block's tombstones for sequences up to `most`. 0, -1: no memory.
    cdef Record r
    cdef uint64_t start = 0
    cdef int bad
    while start < b.rbytes:
        bad = record_parse(block_at(b, start), b.rbytes - start, &r)
        if bad == RECORD_SHORT or bad == RECORD_BAD:
            return 0
        if r.kind == TOMBSTONE and r.seq <= most:
            if m.n == m.room and not array_grow(&m.at, &m.room, 64, sizeof(Mark)):
                return -1
            m.at[m.n].seq = r.seq
            m.at[m.n].ts = r.ts
            m.n += 1
        start += r.size
    return 0


cdef void forget_from(StoreBase s, MsgBlock *b, uint64_t seq) noexcept nogil:
    # Take the messages of a block at or after a sequence out of the counts.
    cdef Record r
    cdef uint32_t k
    cdef uint64_t size
    for k in range(slot_from(b, max(seq, b.first_seq)), b.n_slots):
        if b.offs[k] == NO_SLOT or not block_record(&s.env, b, k, &r):
            continue
        if r.hdr_n:
            ttl_removed(s, r.seq)
            schedule_removed(s, &r)
        subject_removed(s, &r)
        size = msg_size(s, &r)
        s.msgs -= 1
        s.bytes -= size
        b.msgs -= 1
        b.bytes -= size


cdef int cut_block(StoreBase s, MsgBlock *b, uint64_t seq, Marks *tombs, char *copy) noexcept nogil:
    # Rewrite the block of seq: it ends with seq and with the tombstones of the blocks that went. Own `copy`
    # from now on, which has room for the block's bytes and for one record more than there are tombstones.
    cdef Record r
    cdef uint64_t at = 0, n = 0, last = 0
    cdef uint32_t k = slot_of(b, seq)
    cdef size_t i
    cdef int bad, rc
    cdef int64_t ts = b.last_ts
    cdef bint there = k != NO_SLOT and block_record(&s.env, b, k, &r)
    if there:
        ts = r.ts
    forget_from(s, b, seq + 1)
    while at < b.rbytes:
        bad = record_parse(block_at(b, at), b.rbytes - at, &r)
        if bad == RECORD_SHORT or bad == RECORD_BAD:
            at = record_resync(&b.key, b.region.base, b.rbytes, at, last)
            continue
        if r.kind != TOMBSTONE:
            last = r.seq
        if r.seq <= seq:
            memcpy(copy + n, block_at(b, at), r.size)
            n += r.size
        at += r.size
    for i in range(tombs.n):
        block_encode(&s.env, b, copy + n, tombs.at[i].seq | TBIT, tombs.at[i].ts, copy, 0, copy, 0, copy, 0)
        n += EMPTY_RECORD
    if not there:
        block_encode(&s.env, b, copy + n, seq | EBIT, ts, copy, 0, copy, 0, copy, 0)
        n += EMPTY_RECORD
    b.last = True
    b.to_pack = False
    if b.dmap.size:
        seqset_delete_range(&b.dmap, seq + 1, b.last_seq)
    b.last_seq = b.flushed_last = s.last_seq = seq
    b.last_ts = b.flushed_ts = s.last_ts = ts
    if b.msgs == 0:
        b.first_seq = seq + 1
        b.first_ts = 0
    s.last = b
    invalidate(s)
    rc = block_replace(&s.env, b, copy, n, False)
    if rc != 0:
        env_fail(&s.env, -rc, "rewrite", b.index)
        return STORE_FAILED
    return STORE_OK if blk_load(s, b) else STORE_DAMAGED


cdef void forget_blocks(StoreBase s) noexcept nogil:
    # Lower the subjects' last_block to the last block: index.db must not name one that went.
    cdef STreeIter it
    cdef SimpleState *st
    stree_iter(&it, &s.subjects, NULL, 0)
    while stree_next(&it):
        st = <SimpleState *> it.value
        st.last_block = min(st.last_block, s.last.index)
    stree_end(&it)


cdef int truncate(StoreBase s, uint64_t seq, uint64_t *purged) noexcept nogil:
    cdef MsgBlock *b
    cdef char *copy = NULL
    cdef Marks tombs
    cdef uint64_t msgs = s.msgs, size = s.bytes
    cdef size_t keep, i
    cdef int error = STORE_OK, rc
    purged[0] = 0
    if s.closed:
        return STORE_CLOSED
    if s.env.error or flush_last(s) != 0:
        return STORE_FAILED
    if seq >= s.last_seq:
        return STORE_OK
    tombs.at = NULL
    tombs.n = tombs.room = 0
    s.age_seq = min(s.age_seq, seq + 1)   # other messages will have the sequences behind it
    if seq == 0:
        error = purge_all(s, 0, True)
    else:
        invalidate(s)
        if s.index_written:   # it would bring the last sequence back
            env_fail(&s.env, EIO, "truncate", s.last.index)
            error = STORE_FAILED
        keep = blk_at(s, seq)
        # Without a tombstone, its message would come back. So gather all tombstones, and have memory, before a block
        # goes.
        i = s.n_blks
        while i > keep + 1 and error == STORE_OK:
            i -= 1
            if not blk_load(s, s.blks[i]):
                error = STORE_DAMAGED
            elif gather_tombs(&tombs, s.blks[i], seq) != 0:
                error = STORE_NO_MEMORY
        b = s.blks[keep]
        if error == STORE_OK and not blk_load(s, b):
            error = STORE_DAMAGED
        # A message with a sequence that stays deleted could not be removed.
        if error == STORE_OK and not seqset_prepare_cut(&b.dmap, seq + 1):
            error = STORE_NO_MEMORY
        if error == STORE_OK:
            copy = <char *> malloc(b.rbytes + (tombs.n + 1) * EMPTY_RECORD)
            if copy == NULL:
                error = STORE_NO_MEMORY
        while s.n_blks > keep + 1 and error == STORE_OK:
            b = s.blks[s.n_blks - 1]
            if not blk_load(s, b):
                error = STORE_DAMAGED
                break
            rc = block_unlink(&s.env, b)
            if rc != 0:   # its messages would come back
                env_fail(&s.env, -rc, "truncate", b.index)
                error = STORE_FAILED
            else:
                forget_from(s, b, b.first_seq)
                s.n_blks -= 1
                s.near = NULL
                block_free(&s.env, b)
                s.last = s.blks[s.n_blks - 1]
        if error == STORE_OK:
            b = s.blks[keep]
            if blk_load(s, b):
                error = cut_block(s, b, seq, &tombs, copy)
                copy = NULL
            else:
                error = STORE_DAMAGED
        select_next_first(s)
        forget_links(s)
        forget_blocks(s)
        s.dirty += 1
    free(copy)
    free(tombs.at)
    purged[0] = msgs - s.msgs
    if s.on_removed != NULL and msgs > s.msgs:
        s.on_removed(s.ctx, 0, NULL, 0, msgs - s.msgs, size - s.bytes)
    return error
