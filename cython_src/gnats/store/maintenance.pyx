"""Maintenance; see maintenance.pxd (writeFullState, compactWithFloor and syncBlocks of filestore.go)."""
from libc.errno cimport errno
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from posix.unistd cimport close, dup

from gnats.core.runtime.quiesce cimport qs_reclaim, qs_retire
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.store.base cimport STORE_OK, StoreBase, blk_by_index, blk_load, flush_last, sync_written
from gnats.store.block cimport (
    BODY_NONE,
    NO_SLOT,
    SEAL_KEY,
    MsgBlock,
    block_adopt,
    block_at,
    block_encode,
    block_replace,
    block_unload,
    block_write,
    env_fail,
    slot_of,
)
from gnats.store.format.record cimport (
    EBIT,
    EMPTY_RECORD,
    MESSAGE,
    RECORD_BAD,
    RECORD_SHORT,
    TOMBSTONE,
    Record,
    is_whole_mark,
    record_parse,
)
from gnats.store.removing cimport drop_empty
from gnats.store.putfile cimport put_file
from gnats.store.statefile cimport StateFiles, encode_state, invalidate, state_free
from gnats.store.syncing cimport sync_blocks

cdef enum:
    MANY = 1000000       # with more subjects or deletions the state is written by close() only


cdef int put_files(int dirfd, const StateFiles *files) noexcept nogil:
    # The index last: where it is, the others are, too.
    cdef int rc = 0
    if files.ttls.at != NULL:
        rc = put_file(dirfd, b"thw.db", files.ttls.at, files.ttls.n, False)
    if rc == 0 and files.schedules.at != NULL:
        rc = put_file(dirfd, b"sched.db", files.schedules.at, files.schedules.n, False)
    if rc == 0:
        rc = put_file(dirfd, b"index.db", files.index.at, files.index.n, False)
    return rc


cdef int write_state(StoreBase s, bint force) noexcept nogil:
    cdef StateFiles files
    cdef uint64_t dirty, asked
    cdef int fd = -1, rc = 0
    pthread_mutex_lock(&s.lock)
    if s.env.in_memory or s.env.dirfd < 0 or s.last == NULL or s.dirty == 0 or s.env.error:
        pthread_mutex_unlock(&s.lock)
        return 0
    if not force and (s.subjects.size > MANY or s.last_seq + 1 - s.first_seq - s.msgs > MANY):
        pthread_mutex_unlock(&s.lock)
        return 0
    rc = -flush_last(s)
    dirty = s.dirty
    asked = s.invalidations
    memset(&files, 0, sizeof(files))
    if rc == 0 and encode_state(s, &files) == STORE_OK:
        fd = dup(s.env.dirfd)
        if fd < 0:
            rc = errno
    pthread_mutex_unlock(&s.lock)
    if fd >= 0:
        # After a loss of power an index that is newer than its records would count those as lost.
        rc = -sync_blocks(s) if s.env.sync_always else 0
        if rc == 0:
            rc = put_files(fd, &files)
        pthread_mutex_lock(&s.lock)
        s.index_written = True
        if asked != s.invalidations:
            invalidate(s)
        elif rc == 0:
            s.dirty -= min(dirty, s.dirty)
        pthread_mutex_unlock(&s.lock)
        close(fd)
    state_free(&files)
    return rc


# --- rewriting ---

cdef bint is_sparse(const MsgBlock *b) noexcept nogil:
    return b.bytes * 2 < b.rbytes and not b.no_compact


cdef bint due(StoreBase s, const MsgBlock *b) noexcept nogil:
    return b != s.last and b.msgs > 0 and not b.damaged and b.rbytes > 0 and (is_sparse(b) or b.to_pack)


cdef size_t gather(StoreBase s, MsgBlock *b, char *out, bint *ends) noexcept nogil:
    # Copy the records that are still needed: messages, tombstones for earlier blocks, and a mark that the store's
    # last message is whole. Return their size; *ends: they include the block's last sequence.
    cdef uint64_t at = 0
    cdef size_t n = 0
    cdef Record r
    cdef const char *p
    cdef bint behind_last = False
    cdef int bad
    ends[0] = False
    while at < b.rbytes:
        p = block_at(b, at)
        bad = record_parse(p, b.rbytes - at, &r)
        if bad == RECORD_SHORT or bad == RECORD_BAD:
            break
        if (slot_of(b, r.seq) != NO_SLOT if r.kind == MESSAGE
                else r.kind == TOMBSTONE and s.blks[0].low_seq <= r.seq < b.low_seq
                or is_whole_mark(&r) and behind_last):
            memcpy(out + n, p, r.size)
            n += r.size
            ends[0] = ends[0] or (r.kind == MESSAGE and r.seq == b.last_seq)
        behind_last = r.kind == MESSAGE and r.seq == s.last_seq
        at += r.size
    return n


cdef bint rewrite_next(StoreBase s) noexcept nogil:
    cdef MsgBlock *b = NULL
    cdef char *copy = NULL
    cdef char *end
    cdef size_t n = 0, i
    cdef uint64_t rewrites = 0
    cdef uint32_t index = 0
    cdef int fd = -1, rc = 0
    cdef char seal_key[SEAL_KEY]
    cdef bint sealed = False
    cdef bint ends, worked = False, pack = False
    pthread_mutex_lock(&s.lock)
    if not s.closed and s.env.error == 0:
        for i in range(s.n_blks):
            if due(s, s.blks[i]):
                b = s.blks[i]
                break
    if b != NULL and blk_load(s, b) and not b.damaged:
        copy = <char *> malloc(b.rbytes + EMPTY_RECORD)
    if copy != NULL:
        n = gather(s, b, copy, &ends)
        if not ends:
            # add an erased record: a scan must find the block's last sequence
            end = copy + n
            block_encode(&s.env, b, end, b.last_seq | EBIT, b.last_ts, end, 0, end, 0, end, 0)
            n += EMPTY_RECORD
        pack = s.env.compress
        b.to_pack = False
        # do not rewrite the block again before more is removed, if this gained little
        b.no_compact = n * 2 > b.rbytes
        worked = True
        index = b.index
        rewrites = b.rewrites
        if b.seal_key != NULL:
            # copy the key: the block may be freed while its file is written
            sealed = True
            memcpy(seal_key, b.seal_key, SEAL_KEY)
        if s.env.in_memory:
            rc = block_replace(&s.env, b, copy, n, False)
            copy = NULL
            if rc == 0:
                blk_load(s, b)
        else:
            fd = dup(s.env.dirfd)
            if fd < 0:
                rc = -errno
    pthread_mutex_unlock(&s.lock)
    if fd >= 0:
        rc = block_write(&s.env, fd, index, <const void *> seal_key if sealed else NULL, copy, n, pack)
        pthread_mutex_lock(&s.lock)
        b = blk_by_index(s, index)
        if (
            rc == 0 and b != NULL and b.rewrites == rewrites and b != s.last and not s.closed
            and sync_written(s) == 0
        ):
            # The new file may have messages that were removed meanwhile; dmap keeps them deleted.
            invalidate(s)
            s.dirty += 1
            rc = -block_adopt(&s.env, b, n)
            if rc:
                env_fail(&s.env, rc, "rewrite", index)
        pthread_mutex_unlock(&s.lock)
        close(fd)
    free(copy)
    return worked and rc == 0


cdef void unload_idle(StoreBase s, unsigned int ticks) noexcept nogil:
    cdef MsgBlock *b
    cdef size_t i
    pthread_mutex_lock(&s.lock)
    s.env.tick += 1
    if not s.closed and not s.env.in_memory:
        drop_empty(s)
        for i in range(s.n_blks):
            b = s.blks[i]
            if b != s.last and not b.pinned and s.env.tick - b.used > ticks:
                block_unload(&s.env, b)
        if s.last != NULL and s.last.wbuf != NULL and s.last.rbytes == s.last.flushed:
            # an idle stream needs no write buffer
            if s.last.wlent:
                qs_retire(s.last.wbuf)
            else:
                free(s.last.wbuf)
            s.last.wbuf = NULL
            s.last.wroom = 0
            s.last.wlent = False
    pthread_mutex_unlock(&s.lock)
    qs_reclaim()


cdef bint blocks_rest(StoreBase s) noexcept nogil:
    cdef MsgBlock *b
    cdef size_t i
    for i in range(s.n_blks):
        b = s.blks[i]
        if b.need_sync or b.need_key_sync or b.syncing:
            return False
        if b == s.last:
            if b.wbuf != NULL or b.rbytes != b.flushed:
                return False
        elif due(s, b) or (b.kind != BODY_NONE and not b.pinned):
            return False
    return s.n_blks == 0 or s.blks[0] == s.last or s.blks[0].msgs > 0


cdef bint rests(StoreBase s) noexcept nogil:
    cdef bint rest
    pthread_mutex_lock(&s.lock)
    rest = (
        not s.closed and s.env.error == 0 and s.dirty == 0 and not s.subjects_stale
        and not s.env.dir_dirty and s.env.dir_syncing == 0
        and blocks_rest(s)
    )
    pthread_mutex_unlock(&s.lock)
    return rest
