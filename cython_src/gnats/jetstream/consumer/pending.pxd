"""The delivered messages of a consumer: pending acks, redelivery counts, the redelivery queue.

nats-server has a map of pending messages, a map of counts and a queue with an index, keyed by stream sequence. It walks
the whole map when an ack wait ends. Here a hash table has one entry for each sequence. The entries of pending messages
are linked in order of their sequence, for the ack floor, and are in a heap by their deadline.

No lock of its own: the consumer's is held. Only pending_reserve allocates. It may move entries, so pointers to them are
valid until its next call.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    PENDING = 1      # delivered, not acknowledged
    QUEUED = 2       # to be delivered again; a consumer queues only pending messages


cdef struct DeliveredMsg:
    uint64_t seq         # stream sequence
    uint64_t dseq        # consumer sequence of its first delivery; only of a pending message
    int64_t ts           # when its ack wait began, ns since 1970; only of a pending message
    int64_t deadline     # when to deliver it again, ns since 1970; only of a pending message
    int64_t rdc          # redeliveries; the deliveries in a reply subject are one more
    uint32_t next        # pending messages, by sequence: the neighbours' indices in `entries`, 0 for none
    uint32_t prev
    uint32_t following   # redelivery queue: the neighbours' indices
    uint32_t before
    uint32_t slot        # index in the heap, 0: not in it
    uint32_t chain       # the next entry of its bucket, or of the free list
    uint8_t flags        # PENDING, QUEUED


# Entries are named by their index; 0 is none.
cdef struct Pending:
    DeliveredMsg *entries    # entries[0] is unused
    uint32_t *buckets
    uint32_t *heap       # by deadline; heap[0] is unused
    uint32_t cap         # room for entries; a power of two, as is the number of buckets
    uint32_t used        # entries[1..used] have been used
    uint32_t unused      # the free list of those that are not used any more
    uint32_t head        # the pending message with the lowest sequence
    uint32_t tail        # and with the highest
    uint32_t queue_head
    uint32_t queue_tail
    uint32_t n           # pending messages
    uint32_t nqueued
    uint32_t nredelivered    # entries with an rdc


# Make room for one more entry. False when out of memory. The functions below need no memory: call it before one that
# may add an entry.
cdef bint pending_reserve(Pending *p) noexcept nogil
# Free the memory and empty the struct; it can be used again.
cdef void pending_free(Pending *p) noexcept nogil
# Return the entry of a sequence, or NULL.
cdef DeliveredMsg *pending_find(const Pending *p, uint64_t seq) noexcept nogil
# Add an entry for a sequence that has none. It stays only if it is used: call a function that tracks, queues or counts.
cdef DeliveredMsg *pending_add(Pending *p, uint64_t seq) noexcept nogil
# Note a delivery: make a message pending, or update a pending one, which keeps its dseq.
cdef void pending_track(Pending *p, DeliveredMsg *e, uint64_t dseq, int64_t ts, int64_t deadline) noexcept nogil
# Make the message no longer pending. Free the entry unless it is queued or has an rdc.
cdef void pending_untrack(Pending *p, DeliveredMsg *e) noexcept nogil
cdef void pending_set_deadline(Pending *p, DeliveredMsg *e, int64_t deadline) noexcept nogil
# Remove and free the entry, whatever its state.
cdef void pending_forget(Pending *p, DeliveredMsg *e) noexcept nogil
# Return the redeliveries of a sequence, 0 for an unknown one.
cdef int64_t pending_rdc(const Pending *p, uint64_t seq) noexcept nogil
# Return whether a consumer needs a message: it is above the ack floor and, of one with explicit acks, pending if it is
# below `next`, the first that is not delivered. One that has had its deliveries, and no ack, stays needed.
cdef bint pending_needs(const Pending *p, uint64_t seq, uint64_t floor, uint64_t next, bint explicit) noexcept nogil
# Set the redeliveries of a message. Free the entry when it has no more use.
cdef void pending_set_rdc(Pending *p, DeliveredMsg *e, int64_t rdc) noexcept nogil
# Add a sequence to the end of the redelivery queue, unless it is queued.
cdef void pending_enqueue(Pending *p, uint64_t seq) noexcept nogil
# Take an entry out of the redelivery queue.
cdef void pending_dequeue(Pending *p, DeliveredMsg *e) noexcept nogil
# Take the first sequence out of the redelivery queue; 0 when it is empty.
cdef uint64_t pending_pop(Pending *p) noexcept nogil


cdef inline DeliveredMsg *pending_first(const Pending *p) noexcept nogil:
    """The pending message with the lowest sequence, or NULL."""
    return &p.entries[p.head] if p.head else NULL


cdef inline DeliveredMsg *pending_last(const Pending *p) noexcept nogil:
    return &p.entries[p.tail] if p.tail else NULL


cdef inline DeliveredMsg *pending_next(const Pending *p, const DeliveredMsg *e) noexcept nogil:
    """The pending message that follows a pending one, or NULL."""
    return &p.entries[e.next] if e.next else NULL


cdef inline DeliveredMsg *pending_earliest(const Pending *p) noexcept nogil:
    """The pending message whose deadline comes first, or NULL."""
    return &p.entries[p.heap[1]] if p.n else NULL
