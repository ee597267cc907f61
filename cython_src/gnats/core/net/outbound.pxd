"""Outbound memory: pooled chunks, and queues made of them (the outbound half of client.go).

A ChunkPool belongs to one poller. A chunk that another poller has sent returns to its pool over `returned`, a lock-free
stack. An OutQueue has no lock of its own: core.net.connection says which thread may touch which queue.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    CHUNK_CLASSES = 3


cdef struct ChunkPool


cdef struct Chunk:
    Chunk *next
    uint32_t cap     # bytes of data
    uint32_t len     # bytes written into data
    uint32_t sent    # bytes of those that are sent
    uint32_t cls     # size class
    ChunkPool *home  # the pool it belongs to, NULL for malloc
    char data[1]


cdef struct ChunkPool:
    Chunk *free[CHUNK_CLASSES]
    uint32_t n[CHUNK_CLASSES]  # free chunks; atomic, the owner writes
    Chunk *returned  # by other pollers; atomic


cdef struct OutQueue:
    Chunk *head
    Chunk *tail
    size_t bytes     # bytes queued and not sent


# The end of a queue: outq_mark notes it, outq_rollback goes back to it. Nothing may be sent or merged in between.
cdef struct OutMark:
    Chunk *tail
    uint32_t len
    size_t bytes


# Free the idle chunks of a pool, returned ones, too.
cdef void pool_free(ChunkPool *pool) noexcept nogil
# Make room for n contiguous bytes at the tail. NULL without memory, or when no chunk holds so many: use outq_append.
cdef char *outq_reserve_slow(OutQueue *q, ChunkPool *pool, size_t n) noexcept nogil
# Append bytes, over several chunks if need be; -1 when out of memory, with part of them queued. Chunks come from malloc
# when `pool` is NULL, for the control plane.
cdef int outq_append(OutQueue *q, ChunkPool *pool, const char *p, size_t n) noexcept nogil
# Remove what was appended since the mark.
cdef void outq_rollback(OutQueue *q, ChunkPool *pool, const OutMark *mark) noexcept nogil
# Move all of `src` behind `dst`; short chunks are copied into the room at its end.
cdef void outq_merge(OutQueue *dst, OutQueue *src, ChunkPool *pool) noexcept nogil
# Empty a queue; outq_free does it without a pool, in any thread, once no poller has the queue.
cdef void outq_clear(OutQueue *q, ChunkPool *pool) noexcept nogil
cdef void outq_free(OutQueue *q) noexcept nogil
cdef uint32_t outq_chunks(const OutQueue *q) noexcept nogil
# Remove the first n bytes.
cdef void outq_drop(OutQueue *q, ChunkPool *pool, size_t n) noexcept nogil
# Move up to n bytes from the front to p; return their number.
cdef size_t outq_take(OutQueue *q, ChunkPool *pool, char *p, size_t n) noexcept nogil
# Send to a socket. Return the bytes sent, 0 when it takes none now, or -errno.
cdef long outq_send(OutQueue *q, ChunkPool *pool, int fd) noexcept nogil


cdef inline char *outq_reserve(OutQueue *q, ChunkPool *pool, size_t n) noexcept nogil:
    cdef Chunk *t = q.tail
    if t != NULL and t.cap - t.len >= n:
        return t.data + t.len
    return outq_reserve_slow(q, pool, n)


cdef inline OutMark outq_mark(const OutQueue *q) noexcept nogil:
    cdef OutMark mark
    mark.tail = q.tail
    mark.len = q.tail.len if q.tail != NULL else 0
    mark.bytes = q.bytes
    return mark


# Count n bytes that were written to where outq_reserve said.
cdef inline void outq_commit(OutQueue *q, size_t n) noexcept nogil:
    q.tail.len += <uint32_t> n
    q.bytes += n
