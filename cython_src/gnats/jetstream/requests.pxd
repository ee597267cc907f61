"""Pull requests: what they ask for, and the queue of those that wait (waitQueue of consumer.go).

No lock: the consumer's is held.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.jetstream.jsonreq cimport JsonError

cdef enum:
    REQUEST_OK = 0
    REQUEST_BAD_JSON = -1       # the JsonError says why
    REQUEST_BAD_HEARTBEAT = -2
    PIN_ROOM = 32               # bytes of a pin that can be one of ours
    PRIORITIES = 11             # 0 to 9, and one behind for requests without
    SHORT_HEARTBEAT = 100000000  # ns; heartbeats of shorter intervals come at ticks of a clock
    HEARTBEAT_TICK = 10000000    # ns


# What a request asks for. Durations in ns.
cdef struct NextRequest:
    int64_t expires             # 0: it does not
    int64_t batch
    int64_t max_bytes
    int64_t heartbeat
    uint8_t no_wait
    uint8_t has_group           # it was JSON: it has what follows
    const char *group           # between the quotes, may have escapes
    size_t group_n
    const char *id
    size_t id_n
    int64_t min_pending
    int64_t min_ack_pending
    int64_t priority


cdef struct WaitingRequest:
    WaitingRequest *next
    WaitingRequest *prev
    int64_t n                   # messages still to come
    int64_t d                   # delivered
    int64_t b                   # bytes still to come, 0: not limited
    int64_t expires             # monotonic ns, 0: never
    int64_t received
    int64_t hb                  # ns between heartbeats, 0: none
    int64_t hbt                 # the next one
    int64_t min_pending
    int64_t min_ack_pending
    uint64_t generation         # of the sublist when there was interest last, 0: unknown
    uint32_t slot               # of the reply subject, for the generation
    uint8_t no_wait
    uint8_t has_group
    uint8_t priority
    uint8_t id_n                # PIN_ROOM + 1: longer
    char id[PIN_ROOM]
    uint32_t reply_n
    char reply[1]


cdef struct WaitQueue:
    WaitingRequest *head
    WaitingRequest *tail
    WaitingRequest *last_of[PRIORITIES]    # the last of each priority that there is
    uint32_t n, max
    uint32_t nowait             # requests with no_wait
    uint64_t asked              # messages still to come, of all of them; modulo 2**64
    int64_t last                # when something was asked for last, monotonic ns
    int64_t due                 # nothing expires and no heartbeat is due before; 0: nothing at all, as when it is empty


# What msg[:n], without header, asks for. The pointers go into msg.
cdef int next_request(const char *msg, size_t n, NextRequest *out, JsonError *err) noexcept nogil
# NULL when out of memory. To be freed by free(), unless it is in a queue.
cdef int64_t heartbeat_after(int64_t now, int64_t interval) noexcept nogil

cdef WaitingRequest *request_new(const NextRequest *req, const char *reply, size_t n, int64_t now) noexcept nogil
# At the end of those of its priority. False when the queue is full.
cdef bint waitq_add(WaitQueue *q, WaitingRequest *wr) noexcept nogil
cdef void waitq_remove(WaitQueue *q, WaitingRequest *wr) noexcept nogil    # and free it
cdef void waitq_cycle(WaitQueue *q) noexcept nogil                         # the first becomes the last
# One message for the first, which becomes the last of its priority, or, when that was all, is taken out: the caller's.
cdef WaitingRequest *waitq_pop(WaitQueue *q) noexcept nogil
# A request in the queue has n messages still to come.
cdef void waitq_set_n(WaitQueue *q, WaitingRequest *wr, int64_t n) noexcept nogil
cdef void waitq_free(WaitQueue *q) noexcept nogil
# Something is due at `when`.
cdef void waitq_due(WaitQueue *q, int64_t when) noexcept nogil
