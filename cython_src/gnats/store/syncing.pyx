"""Syncing; see syncing.pxd."""
from libc.errno cimport errno
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t
from posix.unistd cimport close, dup

from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.store.base cimport StoreBase, blk_by_index
from gnats.store.block cimport MsgBlock, block_sync_fd, env_sync, env_sync_failed


cdef int sync_blocks(StoreBase s) noexcept nogil:
    # sync_mutex: a caller that finds nothing to sync must not return while another thread is still syncing it.
    cdef uint32_t index = 0
    cdef int fd = -1, err = 0
    cdef bint more = True
    pthread_mutex_lock(&s.sync_mutex)
    while more and err == 0:
        pthread_mutex_lock(&s.lock)
        if s.env.sync_failed:
            err = s.env.error
        else:
            more = next_unsynced(s, &index)
        if more and err == 0:
            fd = unsynced_fd(s, index)
            if fd < 0:
                err = -fd
                env_sync_failed(&s.env, err, index)
            else:
                note_syncing(s, index, 1)
        pthread_mutex_unlock(&s.lock)
        if not more or err:
            break
        err = env_sync(&s.env, fd, index == 0)
        pthread_mutex_lock(&s.lock)
        close(fd)
        note_syncing(s, index, -1)
        if err:
            env_sync_failed(&s.env, err, index)
        pthread_mutex_unlock(&s.lock)
    pthread_mutex_unlock(&s.sync_mutex)
    return -err


cdef bint next_unsynced(StoreBase s, uint32_t *index) noexcept nogil:
    """Find the next thing to sync: a block's index, or after all blocks 0 for the directory. False: nothing."""
    cdef size_t i
    if s.closed or s.env.in_memory:
        return False
    for i in range(s.n_blks):
        if s.blks[i].need_sync or s.blks[i].need_key_sync:
            index[0] = s.blks[i].index
            return True
    index[0] = 0
    return s.env.dir_dirty


cdef int unsynced_fd(StoreBase s, uint32_t index) noexcept nogil:
    """Return a new descriptor of a block's file, or of the directory (0), for the caller to sync and close.

    Clear the mark that it needs a sync. -errno: no descriptor, and nothing has changed.
    """
    cdef int fd
    if index:
        return block_sync_fd(&s.env, blk_by_index(s, index))
    fd = dup(s.env.dirfd)
    if fd < 0:
        return -errno
    s.env.dir_dirty = False
    return fd


cdef void note_syncing(StoreBase s, uint32_t index, int more) noexcept nogil:
    """Count a thread that begins (more 1) or ends (-1) to sync a block, or the directory (0)."""
    cdef MsgBlock *b = blk_by_index(s, index) if index else NULL
    if index == 0:
        s.env.dir_syncing += more
    elif b != NULL and (more > 0 or b.syncing):
        b.syncing += more
