"""The records of a block file; see walk.pxd."""
from libc.errno cimport EINTR, errno
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memmove
from posix.unistd cimport pread

from gnats.includes.arrays cimport array_grow
from gnats.store.block cimport record_resync
from gnats.store.record cimport (
    RECORD_HASH_BAD,
    RECORD_HEADER,
    RECORD_OK,
    RECORD_SHORT,
    TOMBSTONE,
    Record,
    record_decode,
)

cdef enum:
    GAP_MAX = 1 << 24       # between two records of a block: more is damage


cdef void walk_free(Walk *w) noexcept nogil:
    free(w.own)
    free(w.holes)
    w.own = NULL
    w.holes = NULL


cdef int fill(Walk *w, uint64_t need) noexcept nogil:
    # As much as there is of the next `need` bytes, and what fits behind them. 0 or a WalkError.
    cdef size_t off = <size_t> (w.at - w.start), room
    cdef uint8_t *more
    cdef ssize_t got
    need = min(need, w.end - w.at)
    if w.fd < 0 or w.n - off >= need:
        return 0
    room = max(<size_t> need, <size_t> CHUNK)
    if room > w.room:
        more = <uint8_t *> malloc(room)
        if more == NULL:
            return WALK_NO_MEMORY
        if w.n > off:
            memmove(more, w.window + off, w.n - off)
        free(w.own)
        w.own = more
        w.room = room
    elif w.n > off:
        memmove(w.own, w.own + off, w.n - off)
    w.n -= off
    w.start = w.at
    w.window = w.own
    room = <size_t> min(<uint64_t> w.room, w.end - w.start)
    while w.n < room:
        got = pread(w.fd, w.own + w.n, room - w.n, w.start + w.n)
        if got > 0:
            w.n += got
        elif got == 0:
            w.end = w.start + w.n       # somebody has cut it
            break
        elif errno != EINTR:
            w.err = errno
            return WALK_UNREADABLE
    return 0


cdef int add_hole(Walk *w, uint64_t start, uint64_t end, DamageKind kind) noexcept nogil:
    cdef Hole *hole
    if w.n_holes == w.holes_room and not array_grow(&w.holes, &w.holes_room, 16, sizeof(Hole)):
        return WALK_NO_MEMORY
    hole = &w.holes[w.n_holes]
    hole.start = start
    hole.end = end
    hole.first = w.last + 1 if w.last else 0
    hole.last = 0
    hole.kind = kind
    w.n_holes += 1
    return 0


cdef int pass_over(Walk *w, int bad, bint gap) noexcept nogil:
    # What is at w.at is no record: WALK_RECORD, there is one behind it (or here, after all), WALK_END or a WalkError.
    cdef size_t n, resumed
    cdef uint64_t start = w.at
    cdef DamageKind kind = DAMAGE_GAP if gap else DAMAGE_HASH if bad == RECORD_HASH_BAD else DAMAGE_LENGTHS
    cdef int rc
    if not w.reread:
        # Of a server that is running: it may have been written while it was read.
        w.reread = True
        if w.fd >= 0:
            w.n = 0
            w.start = w.at
            rc = fill(w, w.end - w.at)
            return WALK_RECORD if rc == 0 else rc
    n = w.n - <size_t> (w.at - w.start)
    resumed = record_resync(&w.key, <const char *> w.window + (w.at - w.start), n, 0, w.last)
    w.at += resumed
    if resumed >= n and bad == RECORD_SHORT and w.is_last:
        kind = DAMAGE_NONE
    if add_hole(w, start, w.at, kind) != 0:
        return WALK_NO_MEMORY
    return WALK_RECORD if resumed < n else WALK_END


cdef void close_holes(Walk *w, uint64_t seq) noexcept nogil:
    while w.open_holes < w.n_holes:
        w.holes[w.open_holes].last = seq - 1
        w.open_holes += 1


cdef int walk_next(Walk *w, Record *r) noexcept nogil:
    cdef int bad, rc
    cdef size_t n
    cdef const char *p
    cdef bint gap
    while w.at < w.end:
        rc = fill(w, RECORD_HEADER)
        if rc != 0:
            return rc
        p = <const char *> w.window + (w.at - w.start)
        n = w.n - <size_t> (w.at - w.start)
        bad = record_decode(p, n, &w.key, r)
        if bad == RECORD_SHORT and n >= RECORD_HEADER and n < w.end - w.at:
            rc = fill(w, r.size)
            if rc != 0:
                return rc
            p = <const char *> w.window + (w.at - w.start)
            n = w.n - <size_t> (w.at - w.start)
            bad = record_decode(p, n, &w.key, r)
        gap = False
        if bad == RECORD_OK and r.kind != TOMBSTONE and r.seq > w.last:
            gap = w.last and r.seq - w.last > GAP_MAX
        elif bad == RECORD_OK:
            w.at += r.size
            if r.kind == TOMBSTONE or w.every:
                return WALK_RECORD
            continue
        if bad != RECORD_OK or gap:
            rc = pass_over(w, bad, gap)
            if rc != WALK_RECORD:
                return rc
            continue
        if w.open_holes < w.n_holes:
            close_holes(w, r.seq)
        w.last = r.seq
        w.at += r.size
        return WALK_RECORD
    return WALK_END
