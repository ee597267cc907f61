"""The part of a poller that its connections use: memory, caches, timers, signals, counters.

It is a C struct apart from core.poller, so that core.net.connection need not import that. Fields are the owner thread's
unless they say otherwise.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.auth.permission_cache cimport VerdictCache
from gnats.core.net.outbound cimport ChunkPool
from gnats.core.runtime.inbox cimport Inbox
from gnats.core.runtime.quiesce cimport QsParticipant
from gnats.core.runtime.state cimport MAX_POLLERS, ServerState
from gnats.core.runtime.timers cimport TimerHeap
from gnats.core.runtime.turn cimport Turn
from gnats.core.subjects.match_cache cimport ResultCache
from gnats.includes.layout cimport static_assert
from gnats.includes.pthread cimport pthread_mutex_t


# Memory that a poller uses again and again.
cdef struct Scratch:
    char *p
    size_t n                # bytes; atomic, the owner writes


cdef struct PollState:
    QsParticipant qs
    int epfd
    int evfd                # other threads write it to wake this poller
    int tmfd                # armed for the heap's first deadline
    uint32_t index          # in ServerState.pollers
    uint8_t solo            # no other thread moves messages on this server; set before the first connection
    int64_t armed           # deadline that tmfd is set to, monotonic ns; 0: none; atomic, the owner writes
    uint64_t reads          # reads of sockets; atomic: the owner writes, monitoring reads
    # A delivery looks at the receiver's `remote` when this has changed since the last look. It changes with each read,
    # with each message of a stream, and when connections go on after a signal: what caused a message was queued before
    # that message was read, or found.
    uint64_t epoch
    int64_t began           # stopwatch ns when this round began; 0 in a batch that is no round
    uint8_t more            # a read of this batch was long: expect more input
    int64_t flushed         # stopwatch ns when all queues were flushed last,
    int64_t flush_cost      # and the ns that took
    int64_t now             # monotonic ns at the start of this batch, or at its last read of a socket
    uint64_t rng            # xorshift state, for the choice in queue groups
    void *inbox             # borrowed Inbox
    void *state             # borrowed ServerState
    # under `lock`: connections that other threads have signalled
    pthread_mutex_t lock
    void *signalled         # borrowed Connections, chained by sig_next
    uint8_t resume_stalled  # atomic: a consumer has caught up; resume the stalled producers
    # held by other pollers while they hand messages over to several connections, and by this one while it takes them
    pthread_mutex_t receiving
    # connections to flush at the end of the batch, chained by dirty_next
    void *dirty
    # connections of other pollers that got messages in this batch; each gets one signal at its end
    void **touched
    uint32_t ntouched
    size_t touched_cap
    # messages for connections of other pollers, kept to be queued together (core.routing.remote); NULL before the first
    void *handoffs
    uint64_t handing        # the places of `handoffs` that have messages
    void (*hand_over)(PollState *ps) noexcept nogil   # empties them; set when `handing` is not 0
    void *stalled           # paused producers, chained by stall_next
    Turn turn               # of the connection whose input is being handled, or of the end of the batch
    # connections with input that was read and is still to be handled, chained by waiting_next: oldest first
    void *waiting
    void *waiting_last
    # closed connections whose subscriptions are still being removed, chained by leaving_next
    void *leaving
    void *leaving_last
    uint8_t hurry           # atomic: remove them all at once, since no connection is served any more
    ChunkPool pool
    ResultCache cache
    VerdictCache verdicts
    TimerHeap timers
    uint64_t tls_batch      # `wakeups` at the last step of a handshake,
    int64_t tls_spent       # and ns spent on handshakes in that batch
    char *rbuf              # buffer of one read of a connection
    size_t rbuf_len
    Scratch scratch         # the lines of the message being encoded (core.messages.encode),
    Scratch scratch_like    # and that of the same message under the subject of a stream import
    void *s2                # for S2 compression (core.net.s2transport); NULL before the first
    char *mapped            # the subject that the current message's is mapped to; grows
    size_t mapped_len
    uint32_t nclients       # atomic
    # JetStream's (gnats.jetstream.engine.engine); NULL without it. Set before anything else of it exists.
    void *js                # borrowed core.internal.InternalSubscriber: publishes for JetStream in our batches
    void *js_poller         # gnats.jetstream.engine.barrier.JsPoller
    void (*js_hook)(PollState *ps) noexcept nogil  # ends a batch in which one of the next three is set
    uint8_t js_dirty        # the hook has streams to flush, answers to send or consumers to run
    uint8_t js_ready        # it has consumers with more to deliver, or long work
    uint8_t js_signalled    # atomic: another thread has left work for the hook, and written evfd
    # messages, bytes of header and payload, rounds; atomic, the owner writes
    uint64_t in_msgs, in_bytes, out_msgs, out_bytes, wakeups


cdef class PollerBase:
    """The part of a core.poller.Poller that a connection needs."""
    cdef PollState ps
    cdef readonly Inbox inbox
    cdef readonly ServerState state


cdef inline uint64_t poller_bit(const PollState *p) noexcept nogil:
    """Return the poller's bit in a set of pollers."""
    static_assert(MAX_POLLERS <= 8 * sizeof(uint64_t))
    return <uint64_t> 1 << p.index


cdef inline bint pollstate_busy(PollState *p) noexcept nogil:
    """Return whether there is work that must not wait for the next event."""
    return p.js_ready or p.js_dirty or p.leaving != NULL or p.waiting != NULL


cdef inline void hand_over_first(PollState *p) noexcept nogil:
    """Queue kept messages to their connections, before an effect of what follows can be seen."""
    if p.handing:
        p.hand_over(p)


cdef inline uint64_t poller_random64(PollState *p) noexcept nogil:
    p.rng ^= p.rng << 13
    p.rng ^= p.rng >> 7
    p.rng ^= p.rng << 17
    return p.rng


cdef inline uint32_t poller_random(PollState *p) noexcept nogil:
    return <uint32_t> (poller_random64(p) >> 32)
