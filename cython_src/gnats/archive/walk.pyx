"""Iteration over the records of a block file; see walk.pxd."""
from libc.errno cimport EINTR, errno
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove
from posix.unistd cimport pread

from gnats.includes.arrays cimport array_grow
from gnats.store.block cimport MAX_GAP, record_resync
from gnats.store.format.record cimport (
    HAS_HEADERS,
    MESSAGE,
    RECORD_HASH,
    RECORD_HASH_BAD,
    RECORD_HEADER,
    RECORD_OK,
    RECORD_SHORT,
    TOMBSTONE,
    Record,
    record_decode,
    record_subject_n,
)

cdef uint64_t GAPS_MAX = 0xffffffff    # sequences from the first message of a block to its last, as in the store


cdef inline bint too_far(const Walk *w, uint64_t seq) noexcept nogil:
    return w.last != 0 and (seq - w.last > MAX_GAP or seq - w.last + w.skipped > GAPS_MAX)


cdef inline void step_to(Walk *w, const Record *r) noexcept nogil:
    if w.seen:
        w.skipped += r.seq - w.last
    elif r.kind == MESSAGE:
        w.seen = True
    w.last = r.seq


cdef void walk_free(Walk *w) noexcept nogil:
    free(w.own)
    free(w.holes)
    w.own = NULL
    w.holes = NULL


cdef int read_at(Walk *w, uint8_t *to, size_t n, uint64_t offset, size_t *done) noexcept nogil:
    cdef ssize_t got
    done[0] = 0
    while done[0] < n:
        got = pread(w.fd, to + done[0], n - done[0], offset + done[0])
        if got > 0:
            done[0] += got
        elif got == 0:
            break
        elif errno != EINTR:
            w.err = errno
            return WALK_UNREADABLE
    return 0


cdef int fill(Walk *w, uint64_t need, size_t want) noexcept nogil:
    # Make sure that the window has the next `need` bytes, or all that the file has, and read up to `want` if it must
    # read. 0 or a WalkError.
    cdef size_t off, room, done
    cdef uint8_t *more
    cdef int rc
    if w.fd < 0:
        return 0
    if w.at > w.start + w.n:
        w.start = w.at
        w.n = 0
    off = <size_t> (w.at - w.start)
    need = min(need, w.end - w.at)
    if w.n - off >= need:
        return 0
    room = max(<size_t> need, want)
    if room > w.room:
        more = <uint8_t *> malloc(room)
        if more == NULL:
            return WALK_NO_MEMORY
        if w.n > off:
            memcpy(more, w.window + off, w.n - off)
        free(w.own)
        w.own = more
        w.room = room
    elif w.n > off:
        memmove(w.own, w.own + off, w.n - off)
    w.n -= off
    w.start = w.at
    w.window = w.own
    room = <size_t> min(<uint64_t> room, w.end - w.start)
    rc = read_at(w, w.own + w.n, room - w.n, w.start + w.n, &done)
    w.n += done
    if rc == 0 and w.n < room:
        w.end = w.start + w.n       # the file was truncated
    return rc


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
    # Skip bytes at w.at that are not a record. WALK_RECORD: try again at w.at, where a record may be now; WALK_END or
    # a negative WalkError.
    cdef size_t n, resumed
    cdef uint64_t start = w.at
    cdef DamageKind kind = DAMAGE_GAP if gap else DAMAGE_HASH if bad == RECORD_HASH_BAD else DAMAGE_LENGTHS
    cdef int rc
    if not w.reread:
        # A running server may have been writing the record while it was read: read it again.
        w.reread = True
        if w.fd >= 0:
            w.n = 0
            w.start = w.at
            rc = fill(w, w.end - w.at, CHUNK)
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
        rc = fill(w, RECORD_HEADER, CHUNK)
        if rc != 0:
            return rc
        p = <const char *> w.window + (w.at - w.start)
        n = w.n - <size_t> (w.at - w.start)
        bad = record_decode(p, n, &w.key, r)
        if bad == RECORD_SHORT and n >= RECORD_HEADER and n < w.end - w.at:
            rc = fill(w, r.size, CHUNK)
            if rc != 0:
                return rc
            p = <const char *> w.window + (w.at - w.start)
            n = w.n - <size_t> (w.at - w.start)
            bad = record_decode(p, n, &w.key, r)
        gap = False
        if bad == RECORD_OK and r.kind != TOMBSTONE and r.seq > w.last:
            gap = too_far(w, r.seq)
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
        step_to(w, r)
        w.at += r.size
        w.large = r.size >= LARGE_RECORD
        return WALK_RECORD
    return WALK_END


cdef int walk_into(
    Walk *w, char *payload, size_t before, size_t room, char *saved, size_t *lead, Record *r,
) noexcept nogil:
    cdef const char *p
    cdef char *start
    cdef uint16_t subject_n
    cdef uint32_t size, hdr_n = 0
    cdef size_t front, there, done
    if not w.large or w.fd < 0 or w.reread or w.at >= w.end:
        return 0
    if fill(w, RECORD_HEADER + 4, LEAD) != 0:
        return 0
    p = <const char *> w.window + (w.at - w.start)
    there = w.n - <size_t> (w.at - w.start)
    if there < RECORD_HEADER:
        return 0
    memcpy(&size, p, 4)
    subject_n = record_subject_n(p)
    front = RECORD_HEADER + subject_n
    if size & HAS_HEADERS:
        if front + 4 > there:
            return 0
        memcpy(&hdr_n, p + front, 4)
        size &= ~<uint32_t> HAS_HEADERS
        front += 4 + <size_t> hdr_n
    if (size < LARGE_RECORD or size > w.end - w.at or front > before or front > LEAD
            or front + RECORD_HASH > size or size - front > room):
        return 0
    start = payload - front
    memcpy(saved, start, front)
    there = min(there, <size_t> size)
    memcpy(start, p, there)
    if (read_at(w, <uint8_t *> start + there, size - there, w.at + there, &done) != 0
            or record_decode(start, size, &w.key, r) != RECORD_OK or r.kind != MESSAGE or r.msg != payload
            or r.seq <= w.last or too_far(w, r.seq)):
        memcpy(start, saved, front)
        return 0
    if w.open_holes < w.n_holes:
        close_holes(w, r.seq)
    step_to(w, r)
    w.at += size
    lead[0] = front
    return WALK_RECORD
