"""Pooled chunks and outbound queues; see outbound.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport uint16_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from gnats.core.net.shared cimport Shared, shared_drop, shared_hold, shared_new
from gnats.includes.atomics cimport bump32
from gnats.includes.layout cimport before_data, static_assert
from gnats.includes.linux cimport (
    EAGAIN,
    EINTR,
    MSG_DONTWAIT,
    MSG_NOSIGNAL,
    errno,
    iovec,
    msghdr,
    sendmsg,
    ssize_t,
)

cdef extern from * nogil:
    """
    #define gnats_chunk_load(p) __atomic_load_n((p), __ATOMIC_RELAXED)
    #define gnats_chunk_take(p, v) __atomic_exchange_n((p), (v), __ATOMIC_ACQUIRE)
    #define gnats_chunk_swap(p, e, v) \\
        __atomic_compare_exchange_n((p), (e), (v), 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED)
    """
    Chunk *load_chunk "gnats_chunk_load"(Chunk **p)
    Chunk *take_chunks "gnats_chunk_take"(Chunk **p, Chunk *v)
    # *p becomes v if it equals *expected; else *expected becomes *p
    bint swap_chunk "gnats_chunk_swap"(Chunk **p, Chunk **expected, Chunk *v)

cdef enum:
    WORTH_CHAINING = 2048  # copy a shorter chunk from another thread: tiny messages would cost a chunk each
    MAX_IOV = 64          # vectors of one sendmsg: 4 MiB of large chunks, more than a socket buffer takes
    SIZE_OF_REFERENCE = 48   # bytes of memory of a chunk that refers

# Bytes of memory of the first, second and every further chunk of a queue: a connection that now and then gets a message
# costs 2 KiB, a busy one moves 64 KiB at a time. Behind a reference they begin anew: what follows it is mostly the line
# of the next one. KEEP limits the free chunks of a pool (2 + 2 + 8 MiB, and 48 KiB of references).
cdef uint32_t[CHUNK_CLASSES] SIZE = [2048, 16384, 65536, SIZE_OF_REFERENCE]
cdef uint32_t[CHUNK_CLASSES] KEEP = [1024, 128, 128, 1024]


cdef inline size_t holds(uint32_t cls) noexcept nogil:
    """Return the bytes that a chunk can hold: its memory less its header."""
    return SIZE[cls] - before_data(<Chunk *> NULL)


cdef inline size_t largest() noexcept nogil:
    return holds(REFERENCE - 1)


cdef inline Reference *reference(Chunk *c) noexcept nogil:
    static_assert(before_data(<Chunk *> NULL) % sizeof(void *) == 0)
    return <Reference *> c.data


cdef Chunk *chunk_new(ChunkPool *pool, uint32_t cls) noexcept nogil:
    cdef Chunk *c = NULL
    if pool != NULL:
        if pool.free[cls] == NULL and load_chunk(&pool.returned) != NULL:
            take_returned(pool)
        c = pool.free[cls]
    if c != NULL:
        pool.free[cls] = c.next
        bump32(&pool.n[cls], <uint32_t> -1)
    else:
        c = <Chunk *> malloc(SIZE[cls])
        if c == NULL:
            return NULL
        c.cap = <uint32_t> holds(cls)   # outq_refer sets a reference's anew
        c.cls = <uint16_t> cls
        c.home = pool
    c.next = NULL
    c.len = c.sent = 0
    c.begins = c.overtook = 0
    return c


cdef inline void release(Chunk *c) noexcept nogil:
    """A chunk leaves its queue: drop the block that it refers to."""
    if c.cls == REFERENCE:
        shared_drop(reference(c).block)


cdef inline void chunk_put(ChunkPool *pool, Chunk *c) noexcept nogil:
    """Return a chunk of a queue to its pool, or free it; `pool` is the calling poller's."""
    release(c)
    put_back(pool, c)


cdef void put_back(ChunkPool *pool, Chunk *c) noexcept nogil:
    if c.home == NULL:   # `pool` may be NULL, too
        free(c)
        return
    if c.home != pool:
        c.next = load_chunk(&c.home.returned)
        while not swap_chunk(&c.home.returned, &c.next, c):
            pass
        return
    if pool.n[c.cls] >= KEEP[c.cls]:
        free(c)
        return
    c.next = pool.free[c.cls]
    pool.free[c.cls] = c
    bump32(&pool.n[c.cls], 1)


cdef void take_returned(ChunkPool *pool) noexcept nogil:
    cdef Chunk *c = take_chunks(&pool.returned, NULL)
    cdef Chunk *following
    while c != NULL:
        following = c.next
        put_back(pool, c)   # it was released when it left its queue
        c = following


cdef void pool_free(ChunkPool *pool) noexcept nogil:
    cdef int cls
    cdef Chunk *c
    take_returned(pool)
    for cls in range(CHUNK_CLASSES):
        while pool.free[cls] != NULL:
            c = pool.free[cls]
            pool.free[cls] = c.next
            free(c)
        pool.n[cls] = 0


cdef char *outq_reserve_slow(OutQueue *q, ChunkPool *pool, size_t n) noexcept nogil:
    cdef uint32_t cls = 0
    cdef Chunk *c
    if n > largest():
        return NULL
    if q.tail != NULL and q.tail.cls != REFERENCE:
        cls = q.tail.cls + 1 if q.tail.cls + 1 < REFERENCE else REFERENCE - 1
    while holds(cls) < n:
        cls += 1
    c = chunk_new(pool, cls)
    if c == NULL:
        return NULL
    add_chunk(q, c)
    c.begins = 1   # a whole line or message follows
    return c.data


cdef inline void add_chunk(OutQueue *q, Chunk *c) noexcept nogil:
    if q.tail == NULL:
        q.head = c
    else:
        q.tail.next = c
    q.tail = c


cdef int outq_append(OutQueue *q, ChunkPool *pool, const char *p, size_t n) noexcept nogil:
    cdef size_t room
    cdef bint empty = q.tail == NULL
    while n:
        room = q.tail.cap - q.tail.len if q.tail != NULL else 0
        if room == 0:
            if outq_reserve_slow(q, pool, min(n, largest())) == NULL:
                return -1
            q.tail.begins = empty   # these bytes may go on with a message
            empty = False
            room = q.tail.cap - q.tail.len
        if room > n:
            room = n
        memcpy(q.tail.data + q.tail.len, p, room)
        outq_commit(q, room)
        p += room
        n -= room
    return 0


cdef bint outq_put(OutQueue *q, ChunkPool *pool, const char *p, size_t n) noexcept nogil:
    cdef char *room = outq_reserve(q, pool, n)
    cdef OutMark mark
    if room != NULL:
        memcpy(room, p, n)
        outq_commit(q, n)
        return True
    mark = outq_mark(q)
    if outq_append(q, pool, p, n) == 0:
        return True
    outq_rollback(q, pool, &mark)
    return False


cdef int outq_overtake(OutQueue *q, ChunkPool *pool, const char *p, size_t n) noexcept nogil:
    cdef Chunk *before = q.head
    cdef Chunk *c
    while before != NULL and before.next != NULL and not before.next.begins:
        before = before.next
    if before == NULL or before.next == NULL:
        return outq_append(q, pool, p, n)
    c = before.next
    if not c.overtook or c.cap - c.len < n:
        c = chunk_new(pool, 0)
        if c == NULL:
            return -1
        c.begins = c.overtook = 1
        c.next = before.next
        before.next = c
    memcpy(c.data + c.len, p, n)
    c.len += <uint32_t> n
    q.bytes += n
    return 0


cdef int outq_refer(OutQueue *q, ChunkPool *pool, Shared *block, const char *p, uint32_t n) noexcept nogil:
    cdef Chunk *c = chunk_new(pool, REFERENCE)
    if c == NULL:
        return -1
    static_assert(SIZE_OF_REFERENCE - before_data(c) >= sizeof(Reference))
    reference(c).block = shared_hold(block)
    reference(c).p = p
    c.cap = c.len = n   # no room behind it
    add_chunk(q, c)
    q.bytes += n
    return 0


cdef void outq_rollback(OutQueue *q, ChunkPool *pool, const OutMark *mark) noexcept nogil:
    cdef Chunk *c
    if mark.tail == NULL:
        outq_clear(q, pool)
        return
    while mark.tail.next != NULL:
        c = mark.tail.next
        mark.tail.next = c.next
        chunk_put(pool, c)
    q.tail = mark.tail
    q.tail.len = mark.len
    q.bytes = mark.bytes


cdef void outq_merge(OutQueue *dst, OutQueue *src, ChunkPool *pool) noexcept nogil:
    cdef Chunk *c
    while src.head != NULL and dst.tail != NULL:
        if src.head.cls == REFERENCE or src.head.len > WORTH_CHAINING or dst.tail.cap - dst.tail.len < src.head.len:
            break
        c = src.head
        memcpy(dst.tail.data + dst.tail.len, c.data, c.len)
        outq_commit(dst, c.len)
        src.bytes -= c.len
        src.head = c.next
        chunk_put(pool, c)
    if src.head == NULL:
        src.tail = NULL
        return
    if dst.tail == NULL:
        dst.head = src.head
    else:
        dst.tail.next = src.head
    dst.tail = src.tail
    dst.bytes += src.bytes
    src.head = src.tail = NULL
    src.bytes = 0


cdef bint outq_pour(OutQueue *dst, OutQueue *src, ChunkPool *pool) noexcept nogil:
    cdef OutMark mark = outq_mark(dst)
    cdef Chunk *c = src.head
    while c != NULL:
        if outq_append(dst, pool, c.data, c.len) < 0:
            outq_rollback(dst, pool, &mark)
            return False
        c = c.next
    outq_clear(src, pool)
    return True


cdef void outq_clear(OutQueue *q, ChunkPool *pool) noexcept nogil:
    cdef Chunk *c
    while q.head != NULL:
        c = q.head
        q.head = c.next
        chunk_put(pool, c)
    q.tail = NULL
    q.bytes = 0


cdef void outq_free(OutQueue *q) noexcept nogil:
    cdef Chunk *c
    while q.head != NULL:
        c = q.head
        q.head = c.next
        release(c)
        free(c)
    q.tail = NULL
    q.bytes = 0


cdef uint32_t outq_chunks(const OutQueue *q) noexcept nogil:
    cdef uint32_t n = 0
    cdef const Chunk *c = q.head
    while c != NULL:
        n += 1
        c = c.next
    return n


cdef void outq_drop(OutQueue *q, ChunkPool *pool, size_t n) noexcept nogil:
    cdef Chunk *c
    q.bytes -= n
    while q.head != NULL and n >= q.head.len - q.head.sent:
        c = q.head
        n -= c.len - c.sent
        q.head = c.next
        if q.head == NULL:
            q.tail = NULL
        chunk_put(pool, c)
    if q.head != NULL:
        q.head.sent += <uint32_t> n


cdef size_t outq_take(OutQueue *q, ChunkPool *pool, char *p, size_t n) noexcept nogil:
    cdef size_t taken = 0, part
    while q.bytes and taken < n:
        part = q.head.len - q.head.sent
        if part > n - taken:
            part = n - taken
        memcpy(p + taken, chunk_bytes(q.head) + q.head.sent, part)
        outq_drop(q, pool, part)
        taken += part
    return taken


cdef long outq_send(OutQueue *q, ChunkPool *pool, int fd) noexcept nogil:
    cdef iovec[MAX_IOV] iov
    cdef msghdr msg
    cdef Chunk *c
    cdef long total = 0
    cdef size_t asked
    cdef ssize_t n
    memset(&msg, 0, sizeof(msg))
    msg.msg_iov = iov
    while q.bytes:
        asked = 0
        msg.msg_iovlen = 0
        c = q.head
        while c != NULL and msg.msg_iovlen < MAX_IOV:
            iov[msg.msg_iovlen].iov_base = <char *> chunk_bytes(c) + c.sent
            iov[msg.msg_iovlen].iov_len = c.len - c.sent
            asked += c.len - c.sent
            msg.msg_iovlen += 1
            c = c.next
        n = sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL)
        if n < 0:
            if errno == EINTR:
                continue
            if errno == EAGAIN:
                return total
            return -errno
        total += n
        outq_drop(q, pool, <size_t> n)
        if <size_t> n < asked:
            return total
    return total


cdef class Block:
    """A shared block, with a reference of its own; for tests."""
    cdef Shared *shared
    cdef readonly size_t size

    def __cinit__(self, bytes data not None):
        self.size = PyBytes_GET_SIZE(data)
        self.shared = shared_new(self.size)
        if self.shared == NULL:
            raise MemoryError
        memcpy(self.shared.data, PyBytes_AS_STRING(data), self.size)

    def __dealloc__(self):
        shared_drop(self.shared)

    @property
    def users(self) -> int:
        """The number of references, this one included."""
        return self.shared.users


cdef class Queue:
    """An outbound queue with a pool of its own; for tests."""
    cdef OutQueue q
    cdef ChunkPool pool
    cdef OutMark end
    cdef list merged     # keeps the pools of merged chunks alive

    def __cinit__(self):
        self.merged = []

    def __dealloc__(self):
        outq_clear(&self.q, &self.pool)
        pool_free(&self.pool)

    def __len__(self) -> int:
        return self.q.bytes

    def append(self, bytes data not None, *, bint pooled=True) -> None:
        """Append, with chunks from the pool or, as the control plane does, without one."""
        cdef ChunkPool *pool = &self.pool if pooled else NULL
        if outq_append(&self.q, pool, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)) < 0:
            raise MemoryError

    def overtake(self, bytes data not None) -> None:
        """Put a short line ahead of what is queued."""
        if outq_overtake(&self.q, &self.pool, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)) < 0:
            raise MemoryError

    def put(self, bytes data not None) -> bool:
        """Append in one piece. Return False, without appending, when no chunk holds so much."""
        cdef size_t n = PyBytes_GET_SIZE(data)
        cdef char *p = outq_reserve(&self.q, &self.pool, n)
        if p == NULL:
            return False
        memcpy(p, PyBytes_AS_STRING(data), n)
        outq_commit(&self.q, n)
        return True

    def refer(self, Block block not None, size_t start, uint32_t n) -> None:
        """Append n bytes of a block, from `start` on, by a reference."""
        if start + n > block.size or n == 0:
            raise ValueError(f"{n} bytes from {start} of {block.size}")
        if outq_refer(&self.q, &self.pool, block.shared, block.shared.data + start, n) < 0:
            raise MemoryError

    def mark(self) -> None:
        """Note the end of the queue, for take_back()."""
        self.end = outq_mark(&self.q)

    def take_back(self, *, bint pooled=True) -> None:
        """Remove what was appended since mark()."""
        outq_rollback(&self.q, &self.pool if pooled else NULL, &self.end)

    def free(self) -> None:
        """Empty the queue as a thread does that has no pool."""
        outq_free(&self.q)

    @property
    def chunks(self) -> int:
        return outq_chunks(&self.q)

    def merge(self, Queue other not None) -> None:
        """Move all of `other` behind this queue."""
        self.merged.append(other)
        outq_merge(&self.q, &other.q, &self.pool)

    def pour(self, Queue other not None) -> bool:
        """Copy all of `other`, which has no references, behind this queue. Return False without memory."""
        self.merged.append(other)
        return outq_pour(&self.q, &other.q, &self.pool)

    def take(self, size_t n) -> bytes:
        """Remove and return up to n bytes from the front."""
        cdef char *p = <char *> malloc(n + 1)
        if p == NULL:
            raise MemoryError
        try:
            return PyBytes_FromStringAndSize(p, outq_take(&self.q, &self.pool, p, n))
        finally:
            free(p)
