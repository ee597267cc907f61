"""Outbound memory: pooled chunks and the queues made of them (ports the outbound half of client.go).

A ChunkPool belongs to one poller. A chunk that another poller has sent goes home over `returned`, a lock-free stack.
An OutQueue has no lock of its own: see core.connection for who may touch which.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    CHUNK_CLASSES = 3


cdef struct ChunkPool


cdef struct Chunk:
    Chunk *next
    uint32_t cap
    uint32_t len     # bytes written into data
    uint32_t sent    # bytes of those the kernel has taken
    uint32_t cls
    ChunkPool *home  # where it came from, NULL for malloc
    char data[1]


cdef struct ChunkPool:
    Chunk *free[CHUNK_CLASSES]
    uint32_t n[CHUNK_CLASSES]  # atomic, one writer
    Chunk *returned  # by other pollers; atomic


cdef struct OutQueue:
    Chunk *head
    Chunk *tail
    size_t bytes     # queued and not sent


# The end of a queue, to go back to: outq_mark, outq_rollback. Nothing is sent or merged in between.
cdef struct OutMark:
    Chunk *tail
    uint32_t len
    size_t bytes


cdef void pool_free(ChunkPool *pool) noexcept nogil
# Room for n contiguous bytes at the tail. NULL when no chunk holds so many, or out of memory: outq_append spreads them.
cdef char *outq_reserve_slow(OutQueue *q, ChunkPool *pool, size_t n) noexcept nogil
# Append bytes, over several chunks if need be; -1 when out of memory, with part of them queued. Without a pool the
# chunks come from malloc: for the control plane, which is no poller.
cdef int outq_append(OutQueue *q, ChunkPool *pool, const char *p, size_t n) noexcept nogil
# Forget what was appended since the mark.
cdef void outq_rollback(OutQueue *q, ChunkPool *pool, const OutMark *mark) noexcept nogil
# Move all of `src` behind `dst`; small pieces are copied into the room at its end.
cdef void outq_merge(OutQueue *dst, OutQueue *src, ChunkPool *pool) noexcept nogil
cdef void outq_clear(OutQueue *q, ChunkPool *pool) noexcept nogil
cdef void outq_free(OutQueue *q) noexcept nogil
cdef uint32_t outq_chunks(const OutQueue *q) noexcept nogil
# Forget the first n bytes.
cdef void outq_drop(OutQueue *q, ChunkPool *pool, size_t n) noexcept nogil
# Copy up to n bytes of the front to p and forget them: how many.
cdef size_t outq_take(OutQueue *q, ChunkPool *pool, char *p, size_t n) noexcept nogil
# Write what the socket takes: bytes sent, or -errno; 0 when it takes nothing now.
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


# n bytes have been written where outq_reserve said.
cdef inline void outq_commit(OutQueue *q, size_t n) noexcept nogil:
    q.tail.len += <uint32_t> n
    q.bytes += n
