"""Expiry times of sequences; see wheel.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from gnats.core.subjects.subject cimport mul_mix
from gnats.includes.units cimport SECOND
from gnats.includes.varint cimport MAX_VARINT, get_uvarint, get_varint, put_uvarint, put_varint

cdef enum:
    VERSION = 1
    FIRST_ROOM = 64
    MOST_ENTRIES = 0x40000000    # the table is twice as large; `mask` has 32 bits

cdef int64_t TICK = SECOND


cdef inline uint32_t hash_seq(uint64_t seq) noexcept nogil:
    return <uint32_t> mul_mix(seq ^ <uint64_t> 0x9e3779b97f4a7c15, <uint64_t> 0xd6e8feb86659fd93)


cdef inline WheelSlot *slot_of(const Wheel *w, int64_t expires) noexcept nogil:
    # rounded towards zero as Go does, so that times before 1970 have a slot, too
    return &w.slots[<uint64_t> (expires // TICK) & (WHEEL_SLOTS - 1)]


cdef uint32_t place(const Wheel *w, uint64_t seq) noexcept nogil:
    """Return the index at which the table has the sequence, or would have it."""
    cdef uint32_t i = hash_seq(seq) & w.mask
    while w.table[i] and w.entries[w.table[i] - 1].seq != seq:
        i = (i + 1) & w.mask
    return i


cdef bint grow(Wheel *w) noexcept nogil:
    cdef uint32_t room, i
    cdef int s
    cdef WheelEntry *entries
    cdef uint32_t *table
    if w.slots == NULL:
        w.slots = <WheelSlot *> calloc(WHEEL_SLOTS, sizeof(WheelSlot))
        if w.slots == NULL:
            return False
        for s in range(WHEEL_SLOTS):
            w.slots[s].lowest = INT64_MAX
    if w.room >= MOST_ENTRIES:
        return False
    room = w.room * 2 if w.room else FIRST_ROOM
    entries = <WheelEntry *> realloc(w.entries, room * sizeof(WheelEntry))
    if entries == NULL:
        return False
    w.entries = entries
    table = <uint32_t *> calloc(2 * <size_t> room, sizeof(uint32_t))
    if table == NULL:
        return False
    free(w.table)
    w.table = table
    w.mask = 2 * room - 1
    w.room = room
    # the wheel grows only when no entry is free, so all entries below top are in use
    for i in range(w.top):
        table[place(w, entries[i].seq)] = i + 1
    return True


cdef void link(Wheel *w, uint32_t i) noexcept nogil:
    cdef WheelEntry *e = &w.entries[i]
    cdef WheelSlot *slot = slot_of(w, e.expires)
    e.prev = 0
    e.next = slot.first
    if slot.first:
        w.entries[slot.first - 1].prev = i + 1
    slot.first = i + 1
    slot.used += 1
    if e.expires < slot.lowest:
        slot.lowest = e.expires
    if e.expires < w.lowest:
        w.lowest = e.expires


cdef void unlink(Wheel *w, uint32_t i) noexcept nogil:
    cdef WheelEntry *e = &w.entries[i]
    cdef WheelSlot *slot = slot_of(w, e.expires)
    if e.prev:
        w.entries[e.prev - 1].next = e.next
    else:
        slot.first = e.next
    if e.next:
        w.entries[e.next - 1].prev = e.prev
    slot.used -= 1
    if slot.used == 0:
        slot.lowest = INT64_MAX


cdef void vacate(Wheel *w, uint32_t at) noexcept nogil:
    """Clear a place of the table and move later entries of the same run up, so that searches still find them."""
    cdef uint32_t hole = at, i = at, home
    while True:
        i = (i + 1) & w.mask
        if w.table[i] == 0:
            break
        home = hash_seq(w.entries[w.table[i] - 1].seq) & w.mask
        if ((i - home) & w.mask) >= ((i - hole) & w.mask):
            w.table[hole] = w.table[i]
            hole = i
    w.table[hole] = 0


cdef void drop(Wheel *w, uint32_t at) noexcept nogil:
    cdef uint32_t i = w.table[at] - 1
    unlink(w, i)
    vacate(w, at)
    w.entries[i].next = w.free
    w.free = i + 1
    w.count -= 1
    if w.count == 0:
        wheel_clear(w)


cdef void wheel_init(Wheel *w) noexcept nogil:
    memset(w, 0, sizeof(Wheel))
    w.lowest = INT64_MAX


cdef void wheel_clear(Wheel *w) noexcept nogil:
    free(w.slots)
    free(w.entries)
    free(w.table)
    wheel_init(w)


cdef int wheel_add(Wheel *w, uint64_t seq, int64_t expires) noexcept nogil:
    cdef uint32_t at, i
    if w.count:
        at = place(w, seq)
        if w.table[at]:
            i = w.table[at] - 1
            unlink(w, i)
            w.entries[i].expires = expires
            link(w, i)
            return 0
    if w.free == 0 and w.top == w.room and not grow(w):
        return WHEEL_NO_MEMORY
    if w.free:
        i = w.free - 1
        w.free = w.entries[i].next
    else:
        i = w.top
        w.top += 1
    w.entries[i].seq = seq
    w.entries[i].expires = expires
    w.table[place(w, seq)] = i + 1
    link(w, i)
    w.count += 1
    return 0


cdef bint wheel_has(const Wheel *w, uint64_t seq) noexcept nogil:
    return w.count and w.table[place(w, seq)]


cdef bint wheel_find(const Wheel *w, uint64_t seq, int64_t *expires) noexcept nogil:
    cdef uint32_t at
    if w.count == 0:
        return False
    at = place(w, seq)
    if w.table[at] == 0:
        return False
    expires[0] = w.entries[w.table[at] - 1].expires
    return True


cdef bint wheel_remove(Wheel *w, uint64_t seq) noexcept nogil:
    cdef uint32_t at
    if w.count == 0:
        return False
    at = place(w, seq)
    if w.table[at] == 0:
        return False
    drop(w, at)
    return True


cdef size_t wheel_take(Wheel *w, int64_t now, Expiry *out, size_t room) noexcept nogil:
    cdef size_t n = 0
    cdef uint32_t i, following
    cdef int64_t slot_lowest, lowest = INT64_MAX
    cdef WheelSlot *slot
    cdef int s
    if w.count == 0 or w.lowest > now or room == 0:
        return 0
    for s in range(WHEEL_SLOTS):
        slot = &w.slots[s]
        if slot.lowest <= now:
            slot_lowest = INT64_MAX
            i = slot.first
            while i:
                following = w.entries[i - 1].next
                if w.entries[i - 1].expires <= now:
                    if n == room:
                        # the next call goes through the rest
                        return n
                    out[n].seq = w.entries[i - 1].seq
                    out[n].expires = w.entries[i - 1].expires
                    n += 1
                    drop(w, place(w, w.entries[i - 1].seq))
                    if w.count == 0:
                        return n
                elif w.entries[i - 1].expires < slot_lowest:
                    slot_lowest = w.entries[i - 1].expires
                i = following
            slot.lowest = slot_lowest
        if slot.lowest < lowest:
            lowest = slot.lowest
    w.lowest = lowest
    return n


cdef int64_t wheel_next(const Wheel *w) noexcept nogil:
    return w.lowest


cdef size_t wheel_room(const Wheel *w) noexcept nogil:
    return WHEEL_HEADER + <size_t> w.count * (2 * MAX_VARINT)


cdef size_t wheel_encode(const Wheel *w, uint64_t high_seq, uint8_t *out) noexcept nogil:
    cdef uint8_t *p = out + WHEEL_HEADER
    cdef uint64_t count = w.count
    cdef uint32_t i
    cdef int s
    out[0] = VERSION
    memcpy(out + 1, &count, 8)
    memcpy(out + 9, &high_seq, 8)
    if count:
        for s in range(WHEEL_SLOTS):
            i = w.slots[s].first
            while i:
                p = put_varint(p, w.entries[i - 1].expires)
                p = put_uvarint(p, w.entries[i - 1].seq)
                i = w.entries[i - 1].next
    return <size_t> (p - out)


cdef int wheel_decode(Wheel *w, const uint8_t *data, size_t n, uint64_t *high_seq) noexcept nogil:
    cdef const uint8_t *p = data + WHEEL_HEADER
    cdef const uint8_t *end = data + n
    cdef uint64_t count, seq = 0
    cdef int64_t expires = 0
    wheel_clear(w)
    if n < WHEEL_HEADER or data[0] != VERSION:
        return WHEEL_BAD
    memcpy(&count, data + 1, 8)
    memcpy(high_seq, data + 9, 8)
    while count:
        if not get_varint(&p, end, &expires) or not get_uvarint(&p, end, &seq):
            wheel_clear(w)
            return WHEEL_BAD
        if wheel_add(w, seq, expires) < 0:
            wheel_clear(w)
            return WHEEL_NO_MEMORY
        count -= 1
    return 0


# ---- for Python ----

cdef class HashWheel:
    """Expiry times of sequences, in ns since 1970. Raises MemoryError."""
    cdef Wheel wheel

    def __cinit__(self):
        wheel_init(&self.wheel)

    def __dealloc__(self):
        wheel_clear(&self.wheel)

    def __len__(self) -> int:
        return self.wheel.count

    def add(self, uint64_t seq, int64_t expires) -> None:
        if wheel_add(&self.wheel, seq, expires) < 0:
            raise MemoryError

    def find(self, uint64_t seq) -> int | None:
        cdef int64_t expires
        return expires if wheel_find(&self.wheel, seq, &expires) else None

    def remove(self, uint64_t seq) -> bool:
        return wheel_remove(&self.wheel, seq)

    def take(self, int64_t now, size_t most=1024) -> list[tuple[int, int]]:
        cdef Expiry *due = <Expiry *> malloc(max(most, <size_t> 1) * sizeof(Expiry))
        cdef size_t n, i
        if due == NULL:
            raise MemoryError
        try:
            n = wheel_take(&self.wheel, now, due, most)
            return [(due[i].seq, due[i].expires) for i in range(n)]
        finally:
            free(due)

    @property
    def next(self) -> int | None:
        return None if self.wheel.count == 0 else wheel_next(&self.wheel)

    def encode(self, uint64_t high_seq) -> bytes:
        cdef bytes encoded = PyBytes_FromStringAndSize(NULL, wheel_room(&self.wheel))
        cdef size_t n = wheel_encode(&self.wheel, high_seq, <uint8_t *> PyBytes_AS_STRING(encoded))
        return encoded[:n]

    def decode(self, bytes data not None) -> int:
        cdef uint64_t high_seq
        cdef int bad = wheel_decode(&self.wheel, <const uint8_t *> PyBytes_AS_STRING(data), len(data), &high_seq)
        if bad == WHEEL_NO_MEMORY:
            raise MemoryError
        if bad:
            raise ValueError("not an encoded wheel")
        return high_seq
