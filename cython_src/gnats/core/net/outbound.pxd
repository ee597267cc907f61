"""Outbound memory: pooled chunks, and queues made of them (the outbound half of client.go).

A ChunkPool belongs to one poller. A chunk that another poller has sent returns to its pool over `returned`, a lock-free
stack. An OutQueue has no lock of its own: core.net.connection says which thread may touch which queue.

A chunk holds its bytes, or refers to bytes of a block that queues share (core.net.shared). A queue counts the bytes
that it refers to as its own. The thread that puts such a chunk back, or frees it, drops its reference.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from gnats.core.net.shared cimport Shared

cdef enum:
    REFERENCE = 3                  # class of the chunks that refer; the ones below it hold their bytes
    CHUNK_CLASSES = REFERENCE + 1


cdef struct ChunkPool


cdef struct Chunk:
    Chunk *next
    uint32_t cap     # bytes that fit; of a reference, all that it refers to
    uint32_t len     # bytes written
    uint32_t sent    # bytes of those that are sent
    uint16_t cls     # size class
    uint8_t begins   # its first byte begins a line or a message
    uint8_t overtook   # it has lines that outq_overtake() has put ahead, and nothing else
    ChunkPool *home  # the pool it belongs to, NULL for malloc
    char data[1]     # the bytes, or a Reference


cdef struct Reference:
    Shared *block
    const char *p    # in the block


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
# Append a line, all of it or nothing: False without memory.
cdef bint outq_put(OutQueue *q, ChunkPool *pool, const char *p, size_t n) noexcept nogil
# Put a short line ahead of what is queued, at the first place that is known to be between two lines or messages: not
# before what the socket may have taken a part of. -1 when out of memory.
cdef int outq_overtake(OutQueue *q, ChunkPool *pool, const char *p, size_t n) noexcept nogil
# Append n bytes (not 0) at p, which lie in the block, without a copy: the queue takes a reference. -1 when out of
# memory, with nothing queued.
cdef int outq_refer(OutQueue *q, ChunkPool *pool, Shared *block, const char *p, uint32_t n) noexcept nogil
# Remove what was appended since the mark.
cdef void outq_rollback(OutQueue *q, ChunkPool *pool, const OutMark *mark) noexcept nogil
# Move all of `src` behind `dst`; short chunks are copied into the room at its end.
cdef void outq_merge(OutQueue *dst, OutQueue *src, ChunkPool *pool) noexcept nogil
# Copy all of `src`, which has no references, behind `dst`, and empty it. False, and nothing changes, without memory.
cdef bint outq_pour(OutQueue *dst, OutQueue *src, ChunkPool *pool) noexcept nogil
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


cdef inline const char *chunk_bytes(const Chunk *c) noexcept nogil:
    """Return where the first of c.len bytes is."""
    return (<const Reference *> c.data).p if c.cls == REFERENCE else c.data


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
