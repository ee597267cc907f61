"""Message blocks; see block.pxd."""
from libc.errno cimport EBADMSG, EINTR, EIO, ENOENT, ENOMEM, ENOSPC, errno
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset
from posix.fcntl cimport O_CLOEXEC, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY
from posix.unistd cimport close, dup, fdatasync, fsync, ftruncate, pread, pwrite

from gnats.core.runtime.quiesce cimport qs_retire
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport NUMBER_ROOM
from gnats.store.format.highway cimport HighwayKey, highway_key_of
from gnats.store.format.packing cimport pack_records, unpack_records
from gnats.store.format.record cimport (
    EBIT,
    EMPTY_RECORD,
    HEADERS_N,
    MESSAGE,
    RECORD_BAD,
    RECORD_HASH,
    RECORD_HEADER,
    RECORD_HEADERS_BAD,
    RECORD_OK,
    RECORD_SHORT,
    TBIT,
    TOMBSTONE,
    Record,
    record_decode,
    record_encode,
    record_parse,
    record_put,
    record_seq,
    record_stored_hash,
    record_subject_n,
    record_sum,
)
from gnats.store.format.region cimport Region, region_map, region_memory, region_retire
from gnats.store.index.seqset cimport seqset_clear, seqset_exists

cdef extern from "<fcntl.h>" nogil:
    int openat(int dirfd, const char *path, int flags, ...)

cdef extern from "<stdio.h>" nogil:
    int renameat(int olddir, const char *old, int newdir, const char *new)

cdef extern from "<unistd.h>" nogil:
    int unlinkat(int dirfd, const char *path, int flags)
    int64_t lseek(int fd, int64_t offset, int whence)

cdef enum:
    SEEK_END = 2
    WBUF_START = 4 * 1024
    WBUF_FULL = 256 * 1024      # bytes that may wait; more are flushed before the next record
    NAME_SIZE = 32
    NAME_MORE = 1 + NUMBER_ROOM + 1    # what a block's name has behind the stream's: a hyphen, a number, the end
    RESYNC_BUDGET = 64          # record_resync() hashes at most this many times the block's size


# --- records ---

cdef inline bint in_order(uint64_t seq, uint64_t last) noexcept nogil:
    return last == 0 or (seq > last and seq - last <= MAX_GAP)


cdef inline bint is_record(
    const HighwayKey *key, const char *p, size_t n, uint64_t last, uint64_t *budget,
) noexcept nogil:
    # Return whether a whole record begins at p that may follow the sequence `last`. Hashing counts the budget down.
    cdef Record r
    cdef int bad = record_parse(p, n, &r)
    if bad != RECORD_OK and bad != RECORD_HEADERS_BAD or r.kind != TOMBSTONE and not in_order(r.seq, last):
        return False
    if r.size > budget[0]:
        budget[0] = 0
        return False
    budget[0] -= r.size
    return record_decode(p, n, key, &r) == RECORD_OK


cdef bint is_whole(const HighwayKey *key, const char *p, size_t n, uint64_t *budget) noexcept nogil:
    # Return whether the record at p has the right checksum if it is n bytes long, whatever its length field says.
    cdef uint16_t subject_n = record_subject_n(p)
    cdef uint64_t stored
    cdef size_t body, gap, i
    if n < EMPTY_RECORD + <size_t> subject_n:
        return False
    body = n - EMPTY_RECORD - subject_n
    memcpy(&stored, p + n - RECORD_HASH, 8)
    for i in range(2):
        gap = i * HEADERS_N    # without headers, and with
        if gap > body or n > budget[0]:
            break
        budget[0] -= n
        if record_sum(p, key, subject_n, gap, body - gap) == stored:
            return True
    return False


cdef size_t record_resync(const HighwayKey *key, const char *p, size_t n, size_t at, uint64_t last) noexcept nogil:
    # A client can put valid records of this very block into its payload: the key of the checksum is no secret. So a
    # record found inside a damaged message counts only when the message provably ends before it: by its own length, or
    # by its checksum, which the client cannot know beforehand. Nothing is found in a message that was cut off while it
    # was written.
    cdef Record hit
    cdef uint64_t budget = <uint64_t> n * RESYNC_BUDGET, seq
    cdef size_t start = at, least = at + 1, first = n
    cdef bint message
    cdef int bad
    if n - at < RECORD_HEADER:
        return n
    bad = record_parse(p + at, n - at, &hit)
    seq = record_seq(p + at)
    message = seq and seq & (EBIT | TBIT) == 0 and in_order(seq, last)
    if bad == RECORD_OK or bad == RECORD_HEADERS_BAD:
        at += hit.size
        if at == n or is_record(key, p + at, n - at, last, &budget):
            return at
    if message and bad != RECORD_BAD:
        least = n if bad == RECORD_SHORT else at
    at = start + 1
    while at + EMPTY_RECORD <= n and budget:
        if is_record(key, p + at, n - at, last, &budget):
            if not message or is_whole(key, p + start, at - start, &budget):
                return at
            if at >= least and first == n:
                first = at
        at += 1
    return first


cdef uint64_t block_encode(
    BlockEnv *env, MsgBlock *b, char *p, uint64_t seq, int64_t ts, const char *subject, size_t subject_n,
    const char *hdr, size_t hdr_n, const char *msg, size_t msg_n,
) noexcept nogil:
    if not env.in_memory:
        return record_encode(p, &b.key, seq, ts, subject, subject_n, hdr, hdr_n, msg, msg_n)
    record_put(p, seq, ts, subject, subject_n, hdr, hdr_n, msg, msg_n)
    return 0


# --- a block and its file ---

cdef int env_fail(BlockEnv *env, int err, const char *what, uint32_t index) noexcept nogil:
    if env.error == 0:
        env.error = err if err else EIO
        snprintf(env.what, sizeof(env.what), "%s %u.blk", what, index)
    return -(err if err else EIO)


cdef int env_sync_failed(BlockEnv *env, int err, uint32_t index) noexcept nogil:
    env.sync_failed = True
    return env_fail(env, err, "sync", index)


cdef int env_sync(BlockEnv *env, int fd, bint directory) noexcept nogil:
    # The kernel reports a page that it could not write to one fsync alone. sync_error passes it on to all later ones.
    cdef int err
    pthread_mutex_lock(&env.sync_lock)
    while env.sync_error == 0 and (fsync(fd) if directory else fdatasync(fd)) != 0:
        if errno != EINTR:
            env.sync_error = errno
    err = env.sync_error
    pthread_mutex_unlock(&env.sync_lock)
    return err


cdef inline void block_name(char *name, uint32_t index, const char *suffix) noexcept nogil:
    snprintf(name, NAME_SIZE, "%u%s", index, suffix)


cdef MsgBlock *block_alloc(BlockEnv *env, uint32_t index) noexcept nogil:
    cdef MsgBlock *b = <MsgBlock *> calloc(1, sizeof(MsgBlock))
    cdef char *name
    cdef int n
    if b == NULL:
        return NULL
    b.index = index
    b.fd = -1
    if not env.in_memory:
        name = <char *> malloc(env.name_n + NAME_MORE)
        if name == NULL:
            free(b)
            return NULL
        n = snprintf(name, env.name_n + NAME_MORE, "%.*s-%u", <int> env.name_n, env.name, index)
        highway_key_of(&b.key, name, n)
        free(name)
    return b


cdef MsgBlock *block_create(BlockEnv *env, uint32_t index, uint64_t first_seq) noexcept nogil:
    cdef MsgBlock *b = block_alloc(env, index)
    cdef char name[NAME_SIZE]
    cdef int err = 0
    if b == NULL:
        return NULL
    b.first_seq = b.low_seq = first_seq
    b.last_seq = b.flushed_last = first_seq - 1
    b.last = True
    b.resolved = True
    b.indexed = True
    if not env.in_memory:
        block_name(name, index, ".blk")
        b.fd = openat(env.dirfd, name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0o600)
        if b.fd < 0:
            env_fail(env, errno, "create", index)
            free(b)
            return NULL
        env.dir_dirty = True
        if env.sealer != NULL:
            err = env.sealer.new_key(env.sealer, env.dirfd, index, &b.seal_key)
            b.need_key_sync = True
    if err:
        b.region = NULL
    elif env.in_memory or env.sealer != NULL:
        b.kind = BODY_MEMORY
        b.packed = not env.in_memory
        b.region = region_memory(env.block_size)
    else:
        b.kind = BODY_MAPPED
        b.region = region_map(b.fd, env.block_size)
    if b.region == NULL:
        env_fail(env, err if err else ENOMEM, "create", index)
        b.kind = BODY_NONE
        block_unlink(env, b)
        block_free(env, b)
        return NULL
    env.loaded += 1
    b.used = env.tick
    return b


cdef void drop_wbuf(MsgBlock *b) noexcept nogil:
    if b.wlent:
        qs_retire(b.wbuf)
    else:
        free(b.wbuf)
    b.wbuf = NULL
    b.wroom = 0
    b.wlent = False


cdef void drop_slots(MsgBlock *b) noexcept nogil:
    free(b.offs)
    free(b.rel)
    free(b.links)
    b.offs = b.rel = b.links = NULL
    b.n_slots = b.slot_room = 0
    b.base_seq = 0
    b.indexed = False


cdef void block_unload(BlockEnv *env, MsgBlock *b) noexcept nogil:
    if b.kind != BODY_NONE:
        region_retire(b.region)
        b.region = NULL
        b.kind = BODY_NONE
        env.loaded -= 1
    drop_wbuf(b)
    drop_slots(b)


cdef void block_free(BlockEnv *env, MsgBlock *b) noexcept nogil:
    block_unload(env, b)
    if b.fd >= 0:
        close(b.fd)
    seqset_clear(&b.dmap)
    free(b.seal_key)
    free(b)


cdef int block_unlink(BlockEnv *env, MsgBlock *b) noexcept nogil:
    cdef char name[NAME_SIZE]
    if env.in_memory:
        return 0
    block_name(name, b.index, ".blk")
    if unlinkat(env.dirfd, name, 0) != 0:
        return -errno
    if b.seal_key != NULL:
        block_name(name, b.index, ".key")
        unlinkat(env.dirfd, name, 0)
    env.dir_dirty = True
    return 0


# --- the body ---

cdef int read_packed(BlockEnv *env, MsgBlock *b, int fd, size_t size, uint64_t *records) noexcept nogil:
    # Read a compressed or encrypted file into memory and decode it into b.region. 0 or an errno.
    cdef char *raw = <char *> malloc(size + 1)
    cdef size_t done = 0
    cdef ssize_t got
    cdef int err = 0
    if raw == NULL:
        return ENOMEM
    while done < size and err == 0:
        got = pread(fd, raw + done, size - done, done)
        if got > 0:
            done += got
        elif got == 0:
            err = EIO
        elif errno != EINTR:
            err = errno
    if err == 0:
        if b.seal_key != NULL:
            err = env.sealer.apply(b.seal_key, 0, raw, size)
    if err == 0:
        b.region = unpack_records(&b.key, raw, size, env.block_size if b.last else 0, records, &err)
    free(raw)
    return err


cdef int is_packed(int fd) noexcept nogil:
    # Return whether a file that is not encrypted is compressed: 1, 0 or -errno.
    cdef char magic[4]
    cdef ssize_t n = pread(fd, magic, 4, 0)
    while n < 0 and errno == EINTR:
        n = pread(fd, magic, 4, 0)
    if n < 0:
        return -errno
    return n == 4 and magic[0] == c'c' and magic[1] == c'm' and magic[2] == c'p' and magic[3] <= 1


cdef int block_open_body(BlockEnv *env, MsgBlock *b) noexcept nogil:
    cdef char name[NAME_SIZE]
    cdef int64_t size
    cdef int packed = 1
    cdef uint64_t records = 0
    cdef int fd = b.fd, err = 0
    if b.kind != BODY_NONE:
        return 0
    if fd < 0:
        block_name(name, b.index, ".blk")
        fd = openat(env.dirfd, name, O_RDONLY | O_CLOEXEC)
        if fd < 0:
            return -errno
    size = lseek(fd, 0, SEEK_END)
    if size < 0:
        err = errno
    elif env.sealer != NULL and b.seal_key == NULL:
        err = env.sealer.open_key(env.sealer, env.dirfd, b.index, &b.seal_key)
        if err == ENOENT or (err == EBADMSG and size == 0):
            err = 0
    if err == 0 and b.seal_key == NULL:
        packed = is_packed(fd)
        err = -packed if packed < 0 else 0
    if err:
        pass
    elif packed:
        err = read_packed(env, b, fd, size, &records)
        b.kind = BODY_MEMORY
        b.packed = True
    else:
        records = size
        b.region = region_map(fd, max(size, <int64_t> env.block_size) if b.last else size)
        if b.region == NULL:
            err = errno
        b.kind = BODY_MAPPED
        b.packed = False
    if b.fd < 0:
        close(fd)
    if err:
        b.kind = BODY_NONE
        return -err
    b.rbytes = b.flushed = records
    env.loaded += 1
    return 0


# --- slots ---

cdef uint32_t slot_from_gaps(const MsgBlock *b, uint64_t seq) noexcept nogil:
    cdef uint64_t d = seq - b.base_seq
    cdef uint32_t low = 0, high = <uint32_t> min(d, <uint64_t> b.n_slots), mid    # rel[k] >= k
    while low < high:
        mid = low + (high - low) // 2
        if b.rel[mid] < d:
            low = mid + 1
        else:
            high = mid
    return low


cdef int grow_slots(MsgBlock *b, uint32_t room) noexcept nogil:
    cdef uint32_t *more
    more = <uint32_t *> realloc(b.offs, room * sizeof(uint32_t))
    if more == NULL:
        return -1
    b.offs = more
    more = <uint32_t *> realloc(b.links, room * sizeof(uint32_t))
    if more == NULL:
        return -1
    memset(more + b.slot_room, 0, (room - b.slot_room) * sizeof(uint32_t))
    b.links = more
    if b.rel != NULL:
        more = <uint32_t *> realloc(b.rel, room * sizeof(uint32_t))
        if more == NULL:
            return -1
        b.rel = more
    b.slot_room = room
    return 0


cdef int block_push_slot(MsgBlock *b, uint64_t seq, uint32_t offset) noexcept nogil:
    cdef uint64_t gap
    cdef uint32_t k
    if b.n_slots == 0:
        b.base_seq = seq
    gap = seq - b.base_seq
    if b.rel == NULL and gap != b.n_slots:
        gap -= b.n_slots
        if gap <= b.n_slots // 4 + 256:
            # a small gap: fill it with deleted slots, which costs less than `rel`
            if b.n_slots + gap >= b.slot_room and grow_slots(b, <uint32_t> (b.n_slots + gap) * 2) != 0:
                return -1
            for k in range(<uint32_t> gap):
                b.offs[b.n_slots + k] = NO_SLOT
            b.n_slots += <uint32_t> gap
        else:
            b.rel = <uint32_t *> malloc(max(b.slot_room, 1) * sizeof(uint32_t))
            if b.rel == NULL:
                return -1
            for k in range(b.n_slots):
                b.rel[k] = k
    if b.n_slots == b.slot_room and grow_slots(b, max(b.slot_room * 2, 64)) != 0:
        return -1
    b.offs[b.n_slots] = offset
    b.links[b.n_slots] = 0
    if b.rel != NULL:
        b.rel[b.n_slots] = <uint32_t> (seq - b.base_seq)
    b.n_slots += 1
    return 0


cdef int index_records(BlockEnv *env, MsgBlock *b) noexcept nogil:
    # Make the slots of a body. Checks the records of a file; those of a memory store need no check.
    cdef const char *p = b.region.base
    cdef size_t n = b.rbytes, at = 0
    cdef uint64_t last = 0
    cdef bint holes = b.dmap.size > 0
    cdef Record r
    cdef int bad
    while at < n:
        if env.in_memory:
            bad = record_parse(p + at, n - at, &r)
        else:
            bad = record_decode(p + at, n - at, &b.key, &r)
        if bad != RECORD_OK:
            b.damaged = True
            env.damaged += 1
            at = record_resync(&b.key, p, n, at, last)
            continue
        if r.kind != TOMBSTONE and r.seq > last:
            last = r.seq
            if (r.kind == MESSAGE and r.seq >= b.first_seq and r.seq <= b.last_seq
                    and not (holes and seqset_exists(&b.dmap, r.seq))
                    and block_push_slot(b, r.seq, <uint32_t> at) != 0):
                return -ENOMEM
        b.checksum = record_stored_hash(p + at, &r)
        at += r.size
    b.indexed = True
    return 0


cdef int block_load(BlockEnv *env, MsgBlock *b) noexcept nogil:
    cdef int rc
    b.used = env.tick
    if b.indexed:
        return 0
    rc = block_open_body(env, b)
    if rc == 0:
        drop_slots(b)
        rc = index_records(env, b)
        if rc != 0:
            drop_slots(b)
    return rc


cdef bint block_record(BlockEnv *env, MsgBlock *b, uint32_t k, Record *r) noexcept nogil:
    cdef uint64_t offset = b.offs[k]
    if (record_parse(block_at(b, offset), b.rbytes - offset, r) != RECORD_OK or r.kind != MESSAGE
            or r.seq != slot_seq(b, k)):
        b.damaged = True
        env.damaged += 1
        return False
    return True


# --- adding records ---

cdef int grow_region(BlockEnv *env, MsgBlock *b, size_t need) noexcept nogil:
    # Make the body larger than block_size: for a large message, or a block that was begun with a larger block_size.
    cdef Region *r
    need = max(need, env.block_size)
    if b.kind == BODY_MAPPED:
        r = region_map(b.fd, need)
    else:
        r = region_memory(need)
        if r != NULL:
            memcpy(r.base, b.region.base, b.rbytes)
    if r == NULL:
        return -1
    region_retire(b.region)
    b.region = r
    return 0


cdef char *block_reserve(BlockEnv *env, MsgBlock *b, size_t n) noexcept nogil:
    cdef size_t waiting = b.rbytes - b.flushed, room
    cdef char *more
    if b.rbytes + n > b.region.size and grow_region(env, b, b.rbytes + n) != 0:
        return NULL
    if env.in_memory:
        return b.region.base + b.rbytes
    if waiting + n > WBUF_FULL and waiting > 0:
        if block_flush(env, b) != 0:
            return NULL
        waiting = 0
    if b.kind == BODY_MEMORY:
        return b.region.base + b.rbytes
    if waiting + n > b.wroom:
        room = max(b.wroom, WBUF_START)
        while room < waiting + n:
            room *= 2
        more = <char *> malloc(room)
        if more == NULL:
            return NULL
        if waiting:
            memcpy(more, b.wbuf, waiting)
        drop_wbuf(b)
        b.wbuf = more
        b.wroom = room
    return b.wbuf + waiting


cdef void block_commit(MsgBlock *b, size_t n, uint64_t checksum) noexcept nogil:
    b.rbytes += n
    b.checksum = checksum


cdef int write_all(int fd, const char *p, size_t n, uint64_t offset) noexcept nogil:
    cdef ssize_t done
    while n:
        done = pwrite(fd, p, n, offset)
        if done < 0:
            if errno == EINTR:
                continue
            return errno
        if done == 0:
            return ENOSPC
        p += done
        n -= done
        offset += done
    return 0


cdef int block_flush(BlockEnv *env, MsgBlock *b) noexcept nogil:
    cdef size_t n = b.rbytes - b.flushed
    cdef char *copy = NULL
    cdef int err
    if n == 0:
        return 0
    if env.in_memory:
        b.flushed = b.rbytes
        return 0
    if b.kind == BODY_MEMORY:
        copy = <char *> malloc(n)
        if copy == NULL:
            return env_fail(env, ENOMEM, "write", b.index)
        memcpy(copy, b.region.base + b.flushed, n)
        err = 0
        if b.seal_key != NULL:
            err = env.sealer.apply(b.seal_key, b.flushed, copy, n)
        if err == 0:
            err = write_all(b.fd, copy, n, b.flushed)
        free(copy)
    else:
        err = write_all(b.fd, b.wbuf, n, b.flushed)
    if err:
        # Cut off the part that may be written. If that fails, recovery does it: a torn record has no right checksum.
        env_fail(env, err, "write", b.index)
        ftruncate(b.fd, b.flushed)
        return -err
    b.flushed = b.rbytes
    b.flushed_last = b.last_seq
    b.flushed_ts = b.last_ts
    b.need_sync = True
    if b.wlent:
        drop_wbuf(b)
    return 0


cdef void block_drop_pending(BlockEnv *env, MsgBlock *b) noexcept nogil:
    b.rbytes = b.flushed
    drop_wbuf(b)


cdef void block_seal(BlockEnv *env, MsgBlock *b) noexcept nogil:
    b.last = False
    b.to_pack = env.compress
    if b.fd >= 0:
        close(b.fd)
        b.fd = -1
    drop_wbuf(b)


cdef int block_sync_fd(BlockEnv *env, MsgBlock *b) noexcept nogil:
    cdef char name[NAME_SIZE]
    cdef bint key = b.need_key_sync
    cdef int fd
    if b.fd >= 0 and not key:
        fd = dup(b.fd)
    else:
        block_name(name, b.index, ".key" if key else ".blk")
        fd = openat(env.dirfd, name, O_RDONLY | O_CLOEXEC)
    if fd < 0:
        return -errno
    if key:
        b.need_key_sync = False
    else:
        b.need_sync = False
    return fd


cdef int block_sync(BlockEnv *env, MsgBlock *b) noexcept nogil:
    cdef int fd, err = 0
    while err == 0 and (b.need_key_sync or b.need_sync):
        fd = block_sync_fd(env, b)
        if fd < 0:
            err = -fd
        else:
            err = env_sync(env, fd, False)
            close(fd)
    return env_sync_failed(env, err, b.index) if err else 0


cdef int block_open_last(BlockEnv *env, MsgBlock *b) noexcept nogil:
    cdef char name[NAME_SIZE]
    block_name(name, b.index, ".blk")
    b.fd = openat(env.dirfd, name, O_RDWR | O_CLOEXEC)
    if b.fd < 0:
        return -errno
    b.last = True
    return 0


cdef int block_cut(BlockEnv *env, MsgBlock *b, uint64_t offset) noexcept nogil:
    if ftruncate(b.fd, offset) != 0:
        return env_fail(env, errno, "truncate", b.index)
    b.rbytes = b.flushed = offset
    b.need_sync = True
    return 0


cdef int block_set_aside(BlockEnv *env, MsgBlock *b) noexcept nogil:
    cdef char name[NAME_SIZE]
    cdef char bad[NAME_SIZE]
    block_name(name, b.index, ".blk")
    block_name(bad, b.index, ".blk.bad")
    if renameat(env.dirfd, name, env.dirfd, bad) != 0:
        return -errno
    if b.seal_key != NULL:
        block_name(name, b.index, ".key")
        block_name(bad, b.index, ".key.bad")
        renameat(env.dirfd, name, env.dirfd, bad)
    return 0


# --- rewriting ---

cdef int block_write(
    const BlockEnv *env, int dirfd, uint32_t index, const void *seal_key, const char *data, size_t n, bint pack,
) noexcept nogil:
    # Sync N.blk.tmp, because the file that it will replace may be durable.
    cdef char tmp[NAME_SIZE]
    cdef char *packed = NULL
    cdef size_t packed_n = 0
    cdef int fd, err = 0
    block_name(tmp, index, ".blk.tmp")
    if pack or seal_key != NULL:
        packed = pack_records(data, n, pack, &packed_n)
        if packed == NULL:
            return ENOMEM
        if seal_key != NULL:
            err = env.sealer.apply(seal_key, 0, packed, packed_n)
        if err:
            free(packed)
            return err
        data = packed
        n = packed_n
    fd = openat(dirfd, tmp, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0o600)
    if fd < 0:
        err = errno
        free(packed)
        return err
    err = write_all(fd, data, n, 0)
    free(packed)
    if err == 0 and fdatasync(fd) != 0:
        err = errno
    close(fd)
    if err:
        unlinkat(dirfd, tmp, 0)
    return err


cdef int block_adopt(BlockEnv *env, MsgBlock *b, size_t n) noexcept nogil:
    cdef char name[NAME_SIZE]
    cdef char tmp[NAME_SIZE]
    cdef int fd
    block_name(name, b.index, ".blk")
    block_name(tmp, b.index, ".blk.tmp")
    if renameat(env.dirfd, tmp, env.dirfd, name) != 0:
        fd = errno
        unlinkat(env.dirfd, tmp, 0)
        return -fd
    env.dir_dirty = True
    if b.last:
        fd = openat(env.dirfd, name, O_RDWR | O_CLOEXEC)
        if fd < 0:
            return -errno
        if b.fd >= 0:
            close(b.fd)
        b.fd = fd
    block_unload(env, b)
    b.rbytes = n
    b.rewrites += 1
    b.need_sync = False
    return 0


cdef int block_replace(BlockEnv *env, MsgBlock *b, char *data, size_t n, bint pack) noexcept nogil:
    cdef Region *r
    cdef int err
    if env.in_memory:
        r = region_memory(max(n, env.block_size) if b.last else n)
        if r == NULL:
            free(data)
            return -ENOMEM
        memcpy(r.base, data, n)
        free(data)
        region_retire(b.region)
        b.region = r
        b.rbytes = b.flushed = n
        b.rewrites += 1
        drop_slots(b)
        return 0
    err = block_write(env, env.dirfd, b.index, b.seal_key, data, n, pack and env.compress and not b.last)
    free(data)
    return -err if err else block_adopt(env, b, n)
