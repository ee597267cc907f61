"""The S2 layer of a connection; see s2transport.pxd.

Input is untrusted. A chunk's size is checked before memory is taken for it, so that a layer holds one chunk of at most
S2_MAX_CHUNK bytes, with what was read behind it, and its at most S2_MAX_BLOCK bytes of data.
"""
from libc.errno cimport EIO, ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove

from gnats.codec.s2 cimport (
    S2_BAD,
    S2_BEGIN,
    S2_IDENTIFIER,
    S2_NO_MEMORY,
    S2_TABLE_BITS,
    S2Chunk,
    s2_chunk_size,
    s2_decode_chunk,
    s2_next_chunk,
    s2_put_chunk,
    s2_put_identifier,
    s2_put_uncompressed,
    s2_skippable,
)
from gnats.core.net.connection cimport READ_ERROR, UNREAD, Connection
from gnats.core.net.outbound cimport (
    OutMark,
    OutQueue,
    outq_append,
    outq_chunks,
    outq_clear,
    outq_free,
    outq_mark,
    outq_merge,
    outq_rollback,
    outq_take,
)
from gnats.core.net.pollstate cimport PollState
from gnats.core.net.transport cimport Transport, TransportType, transport_push
from gnats.includes.linux cimport EAGAIN

cdef enum:
    # Bytes of data of a chunk that is written: larger ones save 2 to 5 % on JSON.
    PIECE = 64 * 1024
    WIRE = 256 * 1024       # bytes of chunks to queue for the socket; the rest is compressed later
    READ = 64 * 1024        # bytes to read at a time, unless a chunk is larger
    KEEP = 512 * 1024       # bytes of a buffer that stays when it is empty

cdef TransportType S2


# Memory of a poller for compression.
cdef struct Workspace:
    uint32_t[1 << S2_TABLE_BITS] table
    uint8_t[PIECE] data
    uint8_t[PIECE + 128] chunk


cdef struct S2Layer:
    Transport base
    # -- out --
    OutQueue wire           # chunks, for the layer below
    uint8_t uncompressed    # write chunks of uncompressed data
    uint8_t begun           # the identifier is written
    uint8_t waits           # write nothing: the peer has not begun to compress
    # -- in --
    uint8_t plain           # the peer has answered in plain text
    uint8_t identified      # its identifier has come
    char *input             # what was read; input[at:end] is still to be decoded
    size_t cap, at, end
    size_t skip             # bytes that are still to come of a chunk without data
    char *data              # decoded data that receive() had no room for; data[data_at:data_n] is left. NULL: none
    size_t data_at, data_n


# Where receive() puts data: the first `want` bytes of it to `to`, up to `room` bytes that follow to `rest`.
cdef struct Sink:
    char *to
    char *rest
    size_t want, room
    size_t n                # bytes it has got


cdef Transport *s2_make(Connection c, bint waits, bint uncompressed) noexcept:
    cdef S2Layer *s = <S2Layer *> calloc(1, sizeof(S2Layer))
    if s == NULL:
        return NULL
    s.base.type = &S2
    s.waits = waits
    s.uncompressed = uncompressed
    s.base.owned = c.layers
    c.layers = &s.base
    return &s.base


cdef void s2_begin(Connection c, Transport *layer, const char *kept, size_t n) noexcept nogil:
    cdef S2Layer *s = <S2Layer *> layer
    outq_merge(&s.wire, &c.out, &c.ps.pool)
    transport_push(&c.transport, layer, &S2)
    layer.ended = layer.below.ended
    c.mark_dirty()
    if n:
        if not make_room(s, n):
            c.out_of_memory(READ_ERROR)
            return
        memcpy(s.input, kept, n)
        has_come(s, n)
        c.paused |= UNREAD


cdef void s2_set_uncompressed(Transport *layer, bint uncompressed) noexcept nogil:
    (<S2Layer *> layer).uncompressed = uncompressed


# -- reading -----------------------------------------------------------------------------------------------------------

cdef long receive(Transport *base, char *to, size_t want, size_t room) noexcept nogil:
    """Hand on what has come, or read below if nothing complete has."""
    cdef S2Layer *s = <S2Layer *> base
    cdef Sink sink
    cdef long n
    cdef int bad
    sink.to, sink.want = to, want
    sink.rest, sink.room = base.ps.rbuf, room
    sink.n = 0
    bad = decode(s, &sink)
    if sink.n == 0 and bad == 0:
        n = fill(s, room)
        if n < 0:
            return n
        if n == 0:
            return cut_off(s)
        base.ended = base.below.ended
        bad = decode(s, &sink)
    if sink.n:
        return <long> sink.n
    if bad == S2_NO_MEMORY:
        return without_memory(s)
    if bad < 0:
        return -EIO
    return cut_off(s) if base.ended else -EAGAIN


cdef long cut_off(const S2Layer *s) noexcept nogil:
    """Return receive()'s result at the end of the input."""
    return -EIO if s.at < s.end or s.skip else 0


cdef long without_memory(S2Layer *s) noexcept nogil:
    (<Connection> s.base.connection).out_of_memory(READ_ERROR)
    return -EAGAIN


cdef long fill(S2Layer *s, size_t room) noexcept nogil:
    """Read below, up to `room` bytes, behind the part of a chunk that has come. Return as receive() does."""
    cdef PollState *ps = s.base.ps
    cdef Transport *below = s.base.below
    cdef int64_t size = s2_chunk_size(<const uint8_t *> s.input + s.at, s.end - s.at) if s.input != NULL else 0
    cdef size_t space
    cdef long n
    if not make_room(s, READ if size < READ else <size_t> size - (s.end - s.at)):
        return without_memory(s)
    space = min(s.cap - s.end, room)
    n = below.type.receive(below, s.input + s.end, space, 0)
    if n <= 0:
        return n
    if <size_t> n <= space:
        has_come(s, <size_t> n)
        return n
    # A layer that decodes may hand on more than was asked for.
    has_come(s, space)
    if not make_room(s, <size_t> n - space):
        return without_memory(s)
    memcpy(s.input + s.end, ps.rbuf, <size_t> n - space)
    has_come(s, <size_t> n - space)
    return n


cdef bint make_room(S2Layer *s, size_t n) noexcept nogil:
    """Make room for n bytes behind the input. Return False without memory."""
    cdef char *larger
    if s.at == s.end:
        s.at = s.end = 0
        if s.cap > KEEP and n < KEEP:
            free(s.input)
            s.input = NULL
            s.cap = 0
    if s.cap - s.end >= n:
        return True
    if s.at:
        memmove(s.input, s.input + s.at, s.end - s.at)
        s.end -= s.at
        s.at = 0
        if s.cap - s.end >= n:
            return True
    larger = <char *> realloc(s.input, s.end + n)
    if larger == NULL:
        return False
    s.input = larger
    s.cap = s.end + n
    return True


cdef void has_come(S2Layer *s, size_t n) noexcept nogil:
    """Count n bytes that were put behind the input."""
    s.end += n
    if s.waits and not s.plain:
        s.plain = s.input[s.at] == c'-'
        s.waits = s.plain
        (<Connection> s.base.connection).mark_dirty()


cdef bint more(const Transport *base) noexcept nogil:
    cdef const S2Layer *s = <const S2Layer *> base
    cdef int64_t size
    if s.data != NULL:
        return True
    if s.at == s.end or s.plain:
        return s.at < s.end
    size = s2_chunk_size(<const uint8_t *> s.input + s.at, s.end - s.at)
    return size < 0 or (size > 0 and <size_t> size <= s.end - s.at)


cdef int decode(S2Layer *s, Sink *sink) noexcept nogil:
    """Hand on the data that has come, as long as there is room. Return 0 or an S2Error, also when data came before."""
    cdef S2Chunk chunk
    cdef const uint8_t *following
    cdef uint8_t *out
    cdef int got
    while True:
        if s.data != NULL:
            s.data_at += hand_on(sink, s.data + s.data_at, s.data_n - s.data_at)
            if s.data_at < s.data_n:
                return 0
            free(s.data)
            s.data = NULL
        if s.plain:
            s.at += hand_on(sink, s.input + s.at, s.end - s.at)
            return 0
        got = next_chunk(s, &chunk, &following)
        if got <= 0:
            return got
        if chunk.size:
            out = place(sink, chunk.size)
            if out == NULL:
                if sink.n:
                    return 0
                s.data = <char *> malloc(chunk.size)
                if s.data == NULL:
                    return S2_NO_MEMORY
                s.data_at = 0
                s.data_n = chunk.size
                out = <uint8_t *> s.data
            if s2_decode_chunk(&chunk, out) < 0:
                free(s.data)
                s.data = NULL
                return S2_BAD
            if s.data == NULL:
                sink.n += chunk.size
        s.identified = 1
        s.at = <size_t> (<const char *> following - s.input)


cdef int next_chunk(S2Layer *s, S2Chunk *chunk, const uint8_t **following) noexcept nogil:
    """Get the next chunk, and where the one after it begins; 0: more must come first; S2_BAD."""
    cdef const uint8_t *at
    cdef int64_t size
    cdef size_t n
    while True:
        n = min(s.skip, s.end - s.at)
        s.skip -= n
        s.at += n
        n = s.end - s.at
        at = <const uint8_t *> s.input + s.at
        if n and not s.identified and at[0] != S2_BEGIN:
            return S2_BAD
        size = s2_chunk_size(at, n) if n else 0
        if size <= 0:
            return <int> size
        if s2_skippable(at):
            s.skip = <size_t> size
            continue
        if n < <size_t> size:
            return 0
        following[0] = at
        return s2_next_chunk(following, at + n, not s.identified, chunk)


cdef uint8_t *place(Sink *sink, size_t size) noexcept nogil:
    """Return where the next `size` bytes of data go; NULL: there is no room for them in one piece."""
    if sink.n < sink.want:
        return <uint8_t *> sink.to + sink.n if size <= sink.want - sink.n else NULL
    return <uint8_t *> sink.rest + (sink.n - sink.want) if size <= sink.room - (sink.n - sink.want) else NULL


cdef size_t hand_on(Sink *sink, const char *p, size_t n) noexcept nogil:
    """Copy as much as there is room for. Return the number of bytes."""
    cdef size_t first = 0, rest = 0
    if sink.n < sink.want:
        first = min(n, sink.want - sink.n)
        memcpy(sink.to + sink.n, p, first)
        sink.n += first
    if sink.n >= sink.want:
        rest = min(n - first, sink.room - (sink.n - sink.want))
        memcpy(sink.rest + (sink.n - sink.want), p + first, rest)
        sink.n += rest
    return first + rest


# -- writing -----------------------------------------------------------------------------------------------------------

cdef long flush(Transport *base, OutQueue *out) noexcept nogil:
    """Send. Return the bytes by which unsent() has become less, unless the socket has taken nothing."""
    cdef S2Layer *s = <S2Layer *> base
    cdef Transport *below = base.below
    cdef size_t before = unsent(base, out), after
    cdef long sent = 0, n
    while True:
        if not s.waits and out.bytes and not encode(s, out):
            return -ENOMEM
        n = below.type.flush(below, &s.wire)
        if n < 0:
            return n
        sent += n
        if s.wire.bytes or s.waits or out.bytes == 0:
            break
    after = unsent(base, out)
    return 0 if sent == 0 else <long> (before - after) if before > after else 1


cdef bint encode(S2Layer *s, OutQueue *out) noexcept nogil:
    """Move `out` in chunks to `wire`, as long as that is short. Return False without memory."""
    cdef PollState *ps = s.base.ps
    cdef Workspace *work = <Workspace *> ps.s2
    cdef OutMark mark
    cdef size_t n
    if work == NULL:
        work = <Workspace *> malloc(sizeof(Workspace))
        if work == NULL:
            return False
        ps.s2 = work
    while out.bytes and s.wire.bytes < WIRE:
        mark = outq_mark(&s.wire)
        if not s.begun:
            s2_put_identifier(work.chunk)
            if outq_append(&s.wire, &ps.pool, <const char *> work.chunk, S2_IDENTIFIER) < 0:
                return False
            s.begun = 1
        n = outq_take(out, &ps.pool, <char *> work.data, PIECE)
        if s.uncompressed:
            n = s2_put_uncompressed(work.data, n, work.chunk)
        else:
            n = s2_put_chunk(work.data, n, work.chunk, work.table)
        if outq_append(&s.wire, &ps.pool, <const char *> work.chunk, n) < 0:
            outq_rollback(&s.wire, &ps.pool, &mark)
            return False
    return True


cdef size_t unsent(const Transport *base, const OutQueue *out) noexcept nogil:
    cdef const S2Layer *s = <const S2Layer *> base
    return base.below.type.unsent(base.below, &s.wire) + (0 if s.waits else out.bytes)


cdef uint32_t chunks(const Transport *base, const OutQueue *out) noexcept nogil:
    return base.below.type.chunks(base.below, &(<const S2Layer *> base).wire) + outq_chunks(out)


cdef void end(Transport *base) noexcept nogil:
    cdef S2Layer *s = <S2Layer *> base
    base.below.type.flush(base.below, &s.wire)
    outq_clear(&s.wire, &base.ps.pool)


cdef void free_layer(Transport *base) noexcept nogil:
    cdef S2Layer *s = <S2Layer *> base
    outq_free(&s.wire)
    free(s.input)
    free(s.data)
    free(s)


S2.begin = NULL
S2.receive = receive
S2.more = more
S2.flush = flush
S2.unsent = unsent
S2.chunks = chunks
S2.timer = NULL
S2.expired = NULL
S2.end = end
S2.free = free_layer
