"""What a consumer has delivered and not got back: pending acks, redelivery counts, the redelivery queue.

nats-server has a map of pending messages, a map of counts and a queue with an index, keyed by stream sequence and
walked as a whole when the ack wait of one ends. Here one entry says all about a sequence, and is found by it in a hash
table; the pending ones are linked in order of their sequence, for the ack floor, and lie in a heap by their deadline.

No lock: the consumer's is held. Only pending_reserve allocates, and with it entries may move: pointers to them are good
until it is called again.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    PENDING = 1      # delivered, not acknowledged
    QUEUED = 2       # to be delivered again


cdef struct Entry:
    uint64_t seq         # in the stream
    uint64_t dseq        # consumer sequence of its first delivery; of the pending
    int64_t ts           # ns since 1970: its ack wait is counted from here; of the pending
    int64_t deadline     # ns since 1970: then it is to be delivered again; of the pending
    int64_t rdc          # redeliveries; what is sent as deliveries is one more. 0: none that count
    uint32_t next        # pending, in order of seq
    uint32_t prev
    uint32_t following   # in the redelivery queue
    uint32_t before
    uint32_t slot        # in the heap, 0 when it is not
    uint32_t chain       # in its bucket, or of the unused
    uint8_t flags


cdef struct Pending:
    Entry *entries       # entries[0] is unused: 0 is none
    uint32_t *buckets
    uint32_t *heap       # by deadline; heap[0] is unused
    uint32_t cap         # entries there is room for; a power of two, as is the number of buckets
    uint32_t used        # entries that were ever used
    uint32_t unused      # a chain of those that are not any more
    uint32_t head        # pending, the lowest sequence
    uint32_t tail
    uint32_t queue_head
    uint32_t queue_tail
    uint32_t n           # pending
    uint32_t nqueued
    uint32_t nredelivered    # entries with an rdc


# Makes room for one more entry; False when out of memory. What follows needs no memory after it.
cdef bint pending_reserve(Pending *p) noexcept nogil
cdef void pending_free(Pending *p) noexcept nogil              # all of it; it can be used again
cdef Entry *pending_find(const Pending *p, uint64_t seq) noexcept nogil
# Delivered: a new pending message, or one that is pending already and keeps its dseq.
cdef Entry *pending_track(Pending *p, uint64_t seq, uint64_t dseq, int64_t ts, int64_t deadline) noexcept nogil
# No longer pending. The entry goes when there is nothing else to say of it.
cdef void pending_untrack(Pending *p, Entry *e) noexcept nogil
cdef void pending_set_deadline(Pending *p, Entry *e, int64_t deadline) noexcept nogil
cdef void pending_forget(Pending *p, Entry *e) noexcept nogil  # everything about it
# Redeliveries of a sequence, 0 for one that is not known; set_rdc of an unknown one makes an entry.
cdef int64_t pending_rdc(const Pending *p, uint64_t seq) noexcept nogil
cdef void pending_set_rdc(Pending *p, uint64_t seq, int64_t rdc) noexcept nogil
# The redelivery queue: to its end, unless it is in it; out of it; its first, taken out, 0 when it is empty.
cdef void pending_enqueue(Pending *p, uint64_t seq) noexcept nogil
cdef void pending_dequeue(Pending *p, Entry *e) noexcept nogil
cdef uint64_t pending_pop(Pending *p) noexcept nogil


cdef inline Entry *pending_first(const Pending *p) noexcept nogil:
    """The pending message with the lowest sequence, or NULL."""
    return &p.entries[p.head] if p.head else NULL


cdef inline Entry *pending_last(const Pending *p) noexcept nogil:
    return &p.entries[p.tail] if p.tail else NULL


cdef inline Entry *pending_next(const Pending *p, const Entry *e) noexcept nogil:
    """The pending message that follows a pending one, or NULL."""
    return &p.entries[e.next] if e.next else NULL


cdef inline Entry *pending_earliest(const Pending *p) noexcept nogil:
    """The pending message whose deadline comes first, or NULL."""
    return &p.entries[p.heap[1]] if p.n else NULL


cdef inline bint is_queued(const Pending *p, uint64_t seq) noexcept nogil:
    cdef Entry *e = pending_find(p, seq)
    return e != NULL and e.flags & QUEUED != 0


cdef inline bint is_pending(const Pending *p, uint64_t seq) noexcept nogil:
    cdef Entry *e = pending_find(p, seq)
    return e != NULL and e.flags & PENDING != 0
