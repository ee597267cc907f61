"""The delivered messages of a consumer; see pending.pxd."""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

cdef enum:
    FIRST_CAP = 16
    KEPT_CAP = 4096      # the most entries whose memory is kept when no message is pending any more
    MAX_CAP = 1 << 30


cdef inline uint32_t bucket_of(const Pending *p, uint64_t seq) noexcept nogil:
    # Fibonacci hashing: neighbours spread, and so do multiples of a stride
    return <uint32_t> (seq * <uint64_t> 0x9E3779B97F4A7C15 >> 32) & (p.cap - 1)


cdef bint pending_reserve(Pending *p) noexcept nogil:
    cdef uint32_t cap, i, b
    cdef void *grown
    if p.cap > KEPT_CAP and p.used == 0:
        pending_free(p)
    if p.unused or p.used < p.cap:
        return True
    cap = p.cap * 2 if p.cap else FIRST_CAP
    if cap > MAX_CAP:
        return False
    # If memory runs out in between, some of the three have grown and `cap` has not: none is too small.
    grown = realloc(p.entries, (cap + 1) * sizeof(DeliveredMsg))
    if grown == NULL:
        return False
    p.entries = <DeliveredMsg *> grown
    grown = realloc(p.heap, (cap + 1) * sizeof(uint32_t))
    if grown == NULL:
        return False
    p.heap = <uint32_t *> grown
    grown = realloc(p.buckets, cap * sizeof(uint32_t))
    if grown == NULL:
        return False
    p.buckets = <uint32_t *> grown
    p.cap = cap
    memset(p.buckets, 0, cap * sizeof(uint32_t))
    for i in range(1, p.used + 1):   # the table only grows when all entries are in use
        b = bucket_of(p, p.entries[i].seq)
        p.entries[i].chain = p.buckets[b]
        p.buckets[b] = i
    return True


cdef void pending_free(Pending *p) noexcept nogil:
    free(p.entries)
    free(p.buckets)
    free(p.heap)
    memset(p, 0, sizeof(Pending))


cdef DeliveredMsg *pending_find(const Pending *p, uint64_t seq) noexcept nogil:
    cdef uint32_t i
    if p.cap == 0:
        return NULL
    i = p.buckets[bucket_of(p, seq)]
    while i:
        if p.entries[i].seq == seq:
            return &p.entries[i]
        i = p.entries[i].chain
    return NULL


cdef DeliveredMsg *pending_add(Pending *p, uint64_t seq) noexcept nogil:
    cdef DeliveredMsg *e
    cdef uint32_t i = p.unused, b
    if i:
        p.unused = p.entries[i].chain
    else:
        p.used += 1
        i = p.used
    e = &p.entries[i]
    memset(e, 0, sizeof(DeliveredMsg))
    e.seq = seq
    b = bucket_of(p, seq)
    e.chain = p.buckets[b]
    p.buckets[b] = i
    return e


cdef void drop_if_unused(Pending *p, DeliveredMsg *e) noexcept nogil:
    cdef uint32_t i = <uint32_t> (e - p.entries)
    cdef uint32_t *link
    if e.flags or e.rdc:
        return
    link = &p.buckets[bucket_of(p, e.seq)]
    while link[0] != i:
        link = &p.entries[link[0]].chain
    link[0] = e.chain
    e.chain = p.unused
    p.unused = i
    if p.n == 0 and p.nqueued == 0 and p.nredelivered == 0:
        # All are unused: begin at entry 1 again. pending_reserve needs the used entries to be 1..used when it grows.
        p.used = 0
        p.unused = 0


# -- the heap ----------------------------------------------------------------------------------------------------------

cdef inline void heap_put(Pending *p, uint32_t slot, uint32_t i) noexcept nogil:
    p.heap[slot] = i
    p.entries[i].slot = slot


cdef void sift_up(Pending *p, uint32_t slot, uint32_t i) noexcept nogil:
    cdef int64_t when = p.entries[i].deadline
    while slot > 1 and p.entries[p.heap[slot >> 1]].deadline > when:
        heap_put(p, slot, p.heap[slot >> 1])
        slot >>= 1
    heap_put(p, slot, i)


cdef void sift_down(Pending *p, uint32_t slot, uint32_t i, uint32_t n) noexcept nogil:
    cdef int64_t when = p.entries[i].deadline
    cdef uint32_t child
    while True:
        child = slot << 1
        if child > n:
            break
        if child < n and p.entries[p.heap[child + 1]].deadline < p.entries[p.heap[child]].deadline:
            child += 1
        if when <= p.entries[p.heap[child]].deadline:
            break
        heap_put(p, slot, p.heap[child])
        slot = child
    heap_put(p, slot, i)


cdef void pending_set_deadline(Pending *p, DeliveredMsg *e, int64_t deadline) noexcept nogil:
    cdef int64_t before = e.deadline
    e.deadline = deadline
    if deadline < before:
        sift_up(p, e.slot, <uint32_t> (e - p.entries))
    elif deadline > before:
        sift_down(p, e.slot, <uint32_t> (e - p.entries), p.n)


# -- pending -----------------------------------------------------------------------------------------------------------

cdef void pending_track(Pending *p, DeliveredMsg *e, uint64_t dseq, int64_t ts, int64_t deadline) noexcept nogil:
    cdef uint32_t i = <uint32_t> (e - p.entries), after
    e.ts = ts
    if e.flags & PENDING:
        pending_set_deadline(p, e, deadline)
        return
    e.flags |= PENDING
    e.dseq = dseq
    e.deadline = deadline
    # From the tail: a stream is delivered in order, so the new sequence is nearly always the highest.
    after = p.tail
    while after and p.entries[after].seq > e.seq:
        after = p.entries[after].prev
    e.prev = after
    if after:
        e.next = p.entries[after].next
        p.entries[after].next = i
    else:
        e.next = p.head
        p.head = i
    if e.next:
        p.entries[e.next].prev = i
    else:
        p.tail = i
    p.n += 1
    sift_up(p, p.n, i)


cdef void take_out(Pending *p, DeliveredMsg *e) noexcept nogil:
    cdef uint32_t last, slot = e.slot
    if e.prev:
        p.entries[e.prev].next = e.next
    else:
        p.head = e.next
    if e.next:
        p.entries[e.next].prev = e.prev
    else:
        p.tail = e.prev
    last = p.heap[p.n]
    p.n -= 1
    if last != <uint32_t> (e - p.entries):
        if slot > 1 and p.entries[p.heap[slot >> 1]].deadline > p.entries[last].deadline:
            sift_up(p, slot, last)
        else:
            sift_down(p, slot, last, p.n)
    e.slot = 0
    e.flags &= ~PENDING


cdef void pending_untrack(Pending *p, DeliveredMsg *e) noexcept nogil:
    if e.flags & PENDING:
        take_out(p, e)
        drop_if_unused(p, e)


cdef void pending_forget(Pending *p, DeliveredMsg *e) noexcept nogil:
    if e.flags & PENDING:
        take_out(p, e)
    if e.flags & QUEUED:
        unlink(p, e)
    if e.rdc:
        e.rdc = 0
        p.nredelivered -= 1
    drop_if_unused(p, e)


cdef int64_t pending_rdc(const Pending *p, uint64_t seq) noexcept nogil:
    cdef DeliveredMsg *e = pending_find(p, seq)
    return e.rdc if e != NULL else 0


cdef bint pending_needs(const Pending *p, uint64_t seq, uint64_t floor, uint64_t next, bint explicit) noexcept nogil:
    cdef const DeliveredMsg *e = pending_find(p, seq)
    cdef bint need = seq > floor
    if need and explicit and seq < next:
        need = e != NULL and e.flags & PENDING
    return need or (e != NULL and e.rdc != 0)


cdef void pending_set_rdc(Pending *p, DeliveredMsg *e, int64_t rdc) noexcept nogil:
    if (e.rdc != 0) != (rdc != 0):
        p.nredelivered += 1 if rdc != 0 else <uint32_t> -1
    e.rdc = rdc
    drop_if_unused(p, e)


# -- the redelivery queue ----------------------------------------------------------------------------------------------

cdef void pending_enqueue(Pending *p, uint64_t seq) noexcept nogil:
    cdef DeliveredMsg *e = pending_find(p, seq)
    cdef uint32_t i
    if e == NULL:
        e = pending_add(p, seq)
    if e.flags & QUEUED:
        return
    i = <uint32_t> (e - p.entries)
    e.flags |= QUEUED
    e.following = 0
    e.before = p.queue_tail
    if p.queue_tail:
        p.entries[p.queue_tail].following = i
    else:
        p.queue_head = i
    p.queue_tail = i
    p.nqueued += 1


cdef void unlink(Pending *p, DeliveredMsg *e) noexcept nogil:
    if e.before:
        p.entries[e.before].following = e.following
    else:
        p.queue_head = e.following
    if e.following:
        p.entries[e.following].before = e.before
    else:
        p.queue_tail = e.before
    e.flags &= ~QUEUED
    p.nqueued -= 1


cdef void pending_dequeue(Pending *p, DeliveredMsg *e) noexcept nogil:
    if e.flags & QUEUED:
        unlink(p, e)
        drop_if_unused(p, e)


cdef uint64_t pending_pop(Pending *p) noexcept nogil:
    cdef DeliveredMsg *e
    cdef uint64_t seq
    if p.queue_head == 0:
        return 0
    e = &p.entries[p.queue_head]
    seq = e.seq
    unlink(p, e)
    drop_if_unused(p, e)
    return seq


# -- for tests ---------------------------------------------------------------------------------------------------------

cdef class PendingTable:
    """A Pending alone, for tests."""
    cdef Pending p

    def __dealloc__(self):
        pending_free(&self.p)

    cdef DeliveredMsg *find_or_add(self, uint64_t seq) except NULL:
        cdef DeliveredMsg *e
        if not pending_reserve(&self.p):
            raise MemoryError
        e = pending_find(&self.p, seq)
        return e if e != NULL else pending_add(&self.p, seq)

    def track(self, uint64_t seq, uint64_t dseq, int64_t ts, int64_t deadline) -> None:
        """Note a delivery."""
        pending_track(&self.p, self.find_or_add(seq), dseq, ts, deadline)

    def untrack(self, uint64_t seq) -> None:
        """Make a message no longer pending, if it was."""
        cdef DeliveredMsg *e = pending_find(&self.p, seq)
        if e != NULL:
            pending_untrack(&self.p, e)

    def set_deadline(self, uint64_t seq, int64_t deadline) -> None:
        """Set the deadline of a pending message. Raises KeyError when it is not pending."""
        cdef DeliveredMsg *e = pending_find(&self.p, seq)
        if e == NULL or not e.flags & PENDING:
            raise KeyError(seq)
        pending_set_deadline(&self.p, e, deadline)

    def forget(self, uint64_t seq) -> None:
        """Remove all that is kept about a sequence."""
        cdef DeliveredMsg *e = pending_find(&self.p, seq)
        if e != NULL:
            pending_forget(&self.p, e)

    def rdc(self, uint64_t seq) -> int:
        """Return the redeliveries of a sequence."""
        return pending_rdc(&self.p, seq)

    def set_rdc(self, uint64_t seq, int64_t rdc) -> None:
        """Set the redeliveries of a sequence."""
        pending_set_rdc(&self.p, self.find_or_add(seq), rdc)

    def enqueue(self, uint64_t seq) -> None:
        """Add a sequence to the end of the redelivery queue."""
        if not pending_reserve(&self.p):
            raise MemoryError
        pending_enqueue(&self.p, seq)

    def dequeue(self, uint64_t seq) -> None:
        """Take a sequence out of the redelivery queue, if it is in it."""
        cdef DeliveredMsg *e = pending_find(&self.p, seq)
        if e != NULL:
            pending_dequeue(&self.p, e)

    def pop(self) -> int:
        """Take the first sequence out of the redelivery queue; 0 when it is empty."""
        return pending_pop(&self.p)

    def earliest(self) -> int | None:
        """Return the first deadline, or None."""
        cdef DeliveredMsg *e = pending_earliest(&self.p)
        return e.deadline if e != NULL else None

    def state(self) -> tuple[list, list, int]:
        """Return [(seq, dseq, ts, deadline)] in order, the redelivery queue, and the number of entries with an rdc."""
        cdef list pending = []
        cdef list queue = []
        cdef DeliveredMsg *e = pending_first(&self.p)
        cdef uint32_t i = self.p.queue_head
        while e != NULL:
            pending.append((e.seq, e.dseq, e.ts, e.deadline))
            e = pending_next(&self.p, e)
        while i:
            queue.append(self.p.entries[i].seq)
            i = self.p.entries[i].following
        assert len(pending) == self.p.n and len(queue) == self.p.nqueued
        return pending, queue, self.p.nredelivered
