"""What a poller lends to its connections: memory, cache, timers, signals, counters.

A C struct apart from core.poller, so that core.client can use it without the two modules importing each other.
Fields are the owner thread's unless said otherwise.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.outbound cimport ChunkPool
from gnats.core.quiesce cimport QsParticipant
from gnats.core.results cimport ResultCache
from gnats.core.timers cimport TimerHeap
from gnats.core.verdicts cimport VerdictCache
from gnats.includes.pthread cimport pthread_mutex_t


cdef struct PollState:
    QsParticipant qs
    int epfd
    int evfd                # other threads write it to wake this poller
    int tmfd                # armed for the heap's first deadline
    uint32_t index
    uint8_t solo            # no other thread moves messages on this server; set before the first connection
    int64_t armed           # deadline tmfd is set to, 0 when it is not; atomic, one writer
    uint64_t reads          # so far (atomic): what other threads had queued before one is looked at once in it
    uint8_t more            # a read of this batch was long: there is more to come
    int64_t flushed         # when everything was flushed last, and how long that took, in ns
    int64_t flush_cost
    int64_t now             # monotonic ns at the start of this batch
    uint64_t rng            # xorshift state, for the choice in queue groups
    void *inbox             # borrowed Inbox
    void *state             # borrowed ServerState
    # under `lock`: connections other threads want the owner to look at
    pthread_mutex_t lock
    void *signalled         # borrowed Clients, chained by sig_next
    uint8_t resume_stalled  # atomic: a consumer has caught up, let producers go on
    # connections to flush at the end of the batch, chained by dirty_next
    void *dirty
    # connections of other pollers that got messages in this batch: one signal each at its end
    void **touched
    uint32_t ntouched
    size_t touched_cap
    void *stalled           # paused producers, chained by stall_next
    # closed connections whose subscriptions are taken out little by little, chained by leaving_next
    void *leaving
    void *leaving_last
    uint8_t hurry           # atomic: nobody waits any more, take them out at once
    ChunkPool pool
    ResultCache cache
    VerdictCache verdicts
    TimerHeap timers
    uint64_t tls_turn       # `wakeups` when a handshake was gone on with last, and ns spent on them in that batch
    int64_t tls_spent
    char *rbuf
    size_t rbuf_len
    char *scratch           # for the middle of a message header; grows
    size_t scratch_len      # atomic, one writer
    char *mapped            # the subject that a published one is mapped to; grows
    size_t mapped_len
    uint32_t nclients       # atomic
    # JetStream's (gnats.jetstream.engine). NULL without it; set before anything else of it exists.
    void *js                # borrowed core.client.Client that publishes for it in this poller's batches
    void *js_local          # gnats.jetstream.engine.Local
    void (*js_hook)(PollState *ps) noexcept nogil  # called at the end of a batch when one of the next three is set
    void *js_dirty          # streams have taken something
    void *js_ready          # consumers have more to deliver
    uint8_t js_signalled    # atomic: another thread has left something for the hook, and written evfd
    # counters, atomic with one writer
    uint64_t in_msgs, in_bytes, out_msgs, out_bytes, wakeups


cdef class PollerBase:
    """What a connection needs to know of its core.poller.Poller."""
    cdef PollState ps
    cdef readonly object inbox
    cdef readonly object state


cdef inline bint pollstate_busy(PollState *p) noexcept nogil:
    """Is there work that must not wait for the next event?"""
    return p.js_ready != NULL or p.js_dirty != NULL or p.leaving != NULL


cdef inline uint64_t poller_random64(PollState *p) noexcept nogil:
    p.rng ^= p.rng << 13
    p.rng ^= p.rng >> 7
    p.rng ^= p.rng << 17
    return p.rng


cdef inline uint32_t poller_random(PollState *p) noexcept nogil:
    return <uint32_t> (poller_random64(p) >> 32)
