"""A transport layer that splits, delays and fails, as a network may; for tests."""
from libc.errno cimport ECONNRESET, EPIPE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

from gnats.core.net.connection cimport Connection
from gnats.core.net.outbound cimport OutQueue, outq_append, outq_chunks, outq_clear, outq_free, outq_take
from gnats.core.net.transport cimport Transport, TransportType, transport_push
from gnats.includes.linux cimport EAGAIN

cdef enum:
    MOST = 64     # bytes that a read or write moves at most

cdef TransportType DISTURBED


cdef struct Disturbed:
    Transport base
    size_t most       # bytes that a read or write moves at most
    bint late_read, late_write    # do nothing at the next read, at the next write
    int64_t reads, writes         # reads and writes until one fails, that one included; 0: all fail; below 0: none
    OutQueue held


def disturb(Connection c not None, size_t most, *, int64_t reads=-1, int64_t writes=-1) -> None:
    """Disturb a connection that is not started: it reads and writes at most `most` bytes at a time (1 to 64), and
    nothing every other time. The read or write with this number (1 is the first) fails, and all after it; -1: none.
    Raises MemoryError."""
    cdef Disturbed *d = <Disturbed *> calloc(1, sizeof(Disturbed))
    if d == NULL:
        raise MemoryError
    d.most = min(most, <size_t> MOST)
    d.reads = reads
    d.writes = writes
    transport_push(&c.transport, &d.base, &DISTURBED)
    d.base.owned = c.layers
    c.layers = &d.base


cdef bint fails(int64_t *left) noexcept nogil:
    if left[0] > 0:
        left[0] -= 1
    return left[0] == 0


cdef long receive(Transport *base, char *to, size_t want, size_t room) noexcept nogil:
    cdef Disturbed *d = <Disturbed *> base
    cdef Transport *below = base.below
    cdef long n
    d.late_read = not d.late_read
    if d.late_read:
        return -EAGAIN
    if fails(&d.reads):
        return -ECONNRESET
    if want:
        n = below.type.receive(below, to, min(want, d.most), 0)
    else:
        n = below.type.receive(below, NULL, 0, min(room, d.most))
    base.ended = below.ended
    return n


cdef long flush(Transport *base, OutQueue *out) noexcept nogil:
    cdef char[MOST] some
    cdef Disturbed *d = <Disturbed *> base
    cdef Transport *below = base.below
    cdef size_t n
    d.late_write = not d.late_write
    if d.late_write:
        return 0
    if fails(&d.writes):
        return -EPIPE
    if d.held.bytes == 0 and out.bytes:
        n = outq_take(out, &base.ps.pool, some, d.most)
        if outq_append(&d.held, &base.ps.pool, some, n) < 0:
            return -EPIPE
    return below.type.flush(below, &d.held)


cdef size_t unsent(const Transport *base, const OutQueue *out) noexcept nogil:
    cdef const Disturbed *d = <const Disturbed *> base
    return base.below.type.unsent(base.below, &d.held) + out.bytes


cdef uint32_t chunks(const Transport *base, const OutQueue *out) noexcept nogil:
    return base.below.type.chunks(base.below, &(<const Disturbed *> base).held) + outq_chunks(out)


cdef void begin(Transport *base) noexcept nogil:
    if base.below.type.begin != NULL:
        base.below.type.begin(base.below)
    else:
        (<Connection> base.connection).begin_session()


cdef void end(Transport *base) noexcept nogil:
    cdef Disturbed *d = <Disturbed *> base
    base.below.type.flush(base.below, &d.held)
    outq_clear(&d.held, &base.ps.pool)


cdef void free_disturbed(Transport *base) noexcept nogil:
    outq_free(&(<Disturbed *> base).held)
    free(base)


DISTURBED.begin = begin
DISTURBED.receive = receive
DISTURBED.more = NULL
DISTURBED.flush = flush
DISTURBED.unsent = unsent
DISTURBED.chunks = chunks
DISTURBED.timer = NULL
DISTURBED.expired = NULL
DISTURBED.end = end
DISTURBED.free = free_disturbed
