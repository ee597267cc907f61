"""The schedules of a store; see schedules.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from gnats.core.runtime.hash_table cimport as_chained, as_chains, chains_add, chains_clear, chains_remove
from gnats.core.subjects.subject cimport hash_bytes, same_bytes
from gnats.includes.arrays cimport array_grow
from gnats.includes.varint cimport MAX_VARINT, get_uvarint, get_varint, put_uvarint, put_varint

cdef enum:
    VERSION = 1
    FIRST_SLOTS = 16
    LONGEST = 0xffff         # longest subject that the file can hold, in bytes


# -- by time -----------------------------------------------------------------------------------------------------------

cdef inline bint before(const Schedule *a, const Schedule *b) noexcept nogil:
    return a.when < b.when or (a.when == b.when and a.seq < b.seq)


cdef void sift_up(Schedules *all, uint32_t i, Schedule *sc) noexcept nogil:
    while i > 1 and before(sc, all.heap[i >> 1]):
        all.heap[i] = all.heap[i >> 1]
        all.heap[i].slot = i
        i >>= 1
    all.heap[i] = sc
    sc.slot = i


cdef void sift_down(Schedules *all, uint32_t i, Schedule *sc) noexcept nogil:
    cdef uint32_t child
    while True:
        child = i << 1
        if child > all.waiting:
            break
        if child < all.waiting and before(all.heap[child + 1], all.heap[child]):
            child += 1
        if not before(all.heap[child], sc):
            break
        all.heap[i] = all.heap[child]
        all.heap[i].slot = i
        i = child
    all.heap[i] = sc
    sc.slot = i


cdef void wait(Schedules *all, Schedule *sc, int64_t when) noexcept nogil:
    # The heap has room: schedule_add() made it.
    if sc.slot:
        unwait(all, sc)
    sc.when = when
    all.waiting += 1
    sift_up(all, all.waiting, sc)


cdef void unwait(Schedules *all, Schedule *sc) noexcept nogil:
    cdef uint32_t i = sc.slot
    cdef Schedule *last = all.heap[all.waiting]
    sc.slot = 0
    all.waiting -= 1
    if last == sc:
        return
    if i > 1 and before(last, all.heap[i >> 1]):
        sift_up(all, i, last)
    else:
        sift_down(all, i, last)


# -- by subject --------------------------------------------------------------------------------------------------------

cdef Schedule *schedule_find(Schedules *all, const char *subject, uint32_t n) noexcept nogil:
    cdef uint32_t hash
    cdef Schedule *sc
    if all.n == 0:
        return NULL
    hash = hash_bytes(subject, n)
    sc = all.slots[hash & all.mask]
    while sc != NULL and not (sc.hash == hash and sc.subject_n == n and same_bytes(sc.subject, subject, n)):
        sc = sc.next
    return sc


cdef int schedule_add(Schedules *all, uint64_t seq, const char *subject, uint32_t n, int64_t ts) noexcept nogil:
    cdef Schedule *sc = schedule_find(all, subject, n)
    if sc == NULL:
        if all.n + 1 >= all.room and not array_grow(&all.heap, &all.room, 16, sizeof(Schedule *)):
            return SCHEDULES_NO_MEMORY
        sc = <Schedule *> malloc(sizeof(Schedule) + n)
        if sc == NULL:
            return SCHEDULES_NO_MEMORY
        sc.hash = hash_bytes(subject, n)
        sc.slot = 0
        sc.subject_n = n
        memcpy(sc.subject, subject, n)
        if not chains_add(as_chains(all), as_chained(sc), FIRST_SLOTS):
            free(sc)
            return SCHEDULES_NO_MEMORY
        all.text += n
    sc.seq = seq
    schedule_due(all, sc, ts)
    return 0


cdef void schedule_due(Schedules *all, Schedule *sc, int64_t ts) noexcept nogil:
    sc.ts = ts
    wait(all, sc, ts)


cdef void schedule_again(Schedules *all, Schedule *sc, int64_t when) noexcept nogil:
    wait(all, sc, when)


cdef void schedule_drop(Schedules *all, Schedule *sc) noexcept nogil:
    if sc.slot:
        unwait(all, sc)
    all.text -= sc.subject_n
    chains_remove(as_chains(all), as_chained(sc))
    free(sc)
    if all.n == 0:
        schedules_clear(all)


cdef Schedule *schedule_take(Schedules *all, int64_t now) noexcept nogil:
    cdef Schedule *sc
    if all.waiting == 0 or all.heap[1].when > now:
        return NULL
    sc = all.heap[1]
    unwait(all, sc)
    return sc


cdef int64_t schedules_next(const Schedules *all) noexcept nogil:
    return all.heap[1].when if all.waiting else INT64_MAX


cdef void schedules_clear(Schedules *all) noexcept nogil:
    cdef Schedule *sc
    cdef Schedule *following
    cdef uint32_t i
    if all.slots != NULL:
        for i in range(all.mask + 1):
            sc = all.slots[i]
            while sc != NULL:
                following = sc.next
                free(sc)
                sc = following
    chains_clear(as_chains(all))
    free(all.heap)
    memset(all, 0, sizeof(Schedules))


# -- sched.db ----------------------------------------------------------------------------------------------------------

cdef size_t schedules_room(const Schedules *all) noexcept nogil:
    return SCHEDULES_HEADER + all.text + <size_t> all.n * (2 + 2 * MAX_VARINT)


cdef size_t schedules_encode(const Schedules *all, uint64_t high_seq, uint8_t *out) noexcept nogil:
    cdef uint8_t *p = out + SCHEDULES_HEADER
    cdef const Schedule *sc
    cdef uint64_t count = all.n
    cdef uint16_t n
    cdef uint32_t i
    out[0] = VERSION
    memcpy(out + 1, &count, 8)
    memcpy(out + 9, &high_seq, 8)
    if count:
        for i in range(all.mask + 1):
            sc = all.slots[i]
            while sc != NULL:
                n = <uint16_t> min(sc.subject_n, <uint32_t> LONGEST)
                memcpy(p, &n, 2)
                memcpy(p + 2, sc.subject, n)
                p = put_uvarint(put_varint(p + 2 + n, sc.ts), sc.seq)
                sc = sc.next
    return <size_t> (p - out)


cdef int decode_all(Schedules *all, const uint8_t *p, const uint8_t *end, uint64_t count) noexcept nogil:
    cdef const char *subject
    cdef int64_t ts = 0
    cdef uint64_t seq = 0
    cdef uint16_t n = 0
    while count:
        count -= 1
        if end - p < 2:
            return SCHEDULES_BAD
        memcpy(&n, p, 2)
        subject = <const char *> p + 2
        p += 2
        if end - p < n:
            return SCHEDULES_BAD
        p += n
        if not get_varint(&p, end, &ts) or not get_uvarint(&p, end, &seq):
            return SCHEDULES_BAD
        if schedule_add(all, seq, subject, n, ts) != 0:
            return SCHEDULES_NO_MEMORY
    return 0


cdef int schedules_decode(Schedules *all, const uint8_t *data, size_t n, uint64_t *high_seq) noexcept nogil:
    cdef uint64_t count
    cdef int error
    high_seq[0] = 0
    if n < SCHEDULES_HEADER or data[0] != VERSION:
        schedules_clear(all)
        return SCHEDULES_BAD
    memcpy(&count, data + 1, 8)
    error = decode_all(all, data + SCHEDULES_HEADER, data + n, count)
    if error != 0:
        schedules_clear(all)
    else:
        memcpy(high_seq, data + 9, 8)
    return error


cdef class SchedulesProbe:
    """Schedules alone, for tests."""
    cdef Schedules all

    def __cinit__(self):
        memset(&self.all, 0, sizeof(Schedules))

    def __dealloc__(self):
        schedules_clear(&self.all)

    def __len__(self) -> int:
        return self.all.n

    def add(self, bytes subject not None, uint64_t seq, int64_t ts) -> None:
        if schedule_add(&self.all, seq, PyBytes_AS_STRING(subject), <uint32_t> len(subject), ts) != 0:
            raise MemoryError

    cdef Schedule *of(self, bytes subject) except NULL:
        cdef Schedule *sc = schedule_find(&self.all, PyBytes_AS_STRING(subject), <uint32_t> PyBytes_GET_SIZE(subject))
        if sc == NULL:
            raise KeyError(subject)
        return sc

    def due(self, bytes subject not None, int64_t ts) -> None:
        schedule_due(&self.all, self.of(subject), ts)

    def again(self, bytes subject not None, int64_t when) -> None:
        schedule_again(&self.all, self.of(subject), when)

    def drop(self, bytes subject not None) -> None:
        schedule_drop(&self.all, self.of(subject))

    def take(self, int64_t now) -> tuple[bytes, int, int] | None:
        """Take the first schedule due at `now`: (subject, sequence, time), or None."""
        cdef Schedule *sc = schedule_take(&self.all, now)
        if sc == NULL:
            return None
        return sc.subject[:sc.subject_n], sc.seq, sc.ts

    @property
    def next(self) -> int | None:
        return schedules_next(&self.all) if self.all.waiting else None

    def encode(self, uint64_t high_seq) -> bytes:
        cdef bytes encoded = PyBytes_FromStringAndSize(NULL, schedules_room(&self.all))
        return encoded[:schedules_encode(&self.all, high_seq, <uint8_t *> PyBytes_AS_STRING(encoded))]

    def decode(self, bytes data not None) -> int:
        cdef uint64_t high_seq
        cdef int bad = schedules_decode(
            &self.all, <const uint8_t *> PyBytes_AS_STRING(data), len(data), &high_seq)
        if bad == SCHEDULES_NO_MEMORY:
            raise MemoryError
        if bad:
            raise ValueError("not a list of schedules")
        return high_seq
