"""Pull requests: their parsing, and the queue of waiting requests (waitQueue of consumer.go).

The consumer's lock is held.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.jetstream.engine.jsonreq cimport JsonError

cdef enum:
    REQUEST_OK = 0
    REQUEST_BAD_JSON = -1       # the JsonError says why
    REQUEST_BAD_HEARTBEAT = -2
    PIN_ROOM = 32               # bytes of a pin that a request keeps
    PRIORITIES = 11             # 0 to 9, and the last for requests without a priority
    SHORT_HEARTBEAT = 100000000  # ns; heartbeats with a shorter interval are sent at multiples of HEARTBEAT_TICK
    HEARTBEAT_TICK = 10000000    # ns


# A parsed pull request. Durations are ns.
cdef struct NextRequest:
    int64_t expires             # 0: it does not expire
    int64_t batch
    int64_t max_bytes
    int64_t heartbeat
    uint8_t no_wait
    uint8_t has_group           # the request was JSON: the fields below are set
    const char *group           # the text between the quotes; may have escapes
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
    int64_t d                   # messages delivered
    int64_t b                   # bytes still to come, 0: not limited
    int64_t expires             # monotonic ns, 0: never
    int64_t received            # monotonic ns
    int64_t hb                  # ns between heartbeats, 0: none
    int64_t hbt                 # when the next heartbeat is due, monotonic ns
    int64_t min_pending
    int64_t min_ack_pending
    uint64_t generation         # of the sublist when the reply subject last had interest, 0: unknown
    uint32_t slot               # the sublist's generation slot of the reply subject
    uint8_t no_wait
    uint8_t has_group
    uint8_t priority
    uint8_t id_n                # PIN_ROOM + 1: longer
    uint8_t announced           # the other replicas of the consumer were told of it
    char id[PIN_ROOM]
    uint32_t reply_n
    char reply[1]


cdef struct WaitQueue:
    WaitingRequest *head
    WaitingRequest *tail
    WaitingRequest *last_of[PRIORITIES]    # the last request of each priority, or NULL
    uint32_t n, max
    uint32_t nowait             # requests with no_wait
    uint32_t unannounced        # requests that are not announced
    uint64_t asked              # messages still to come, of all requests; modulo 2**64
    int64_t last                # when a client last asked for messages or got one, monotonic ns
    int64_t due                 # no request expires and no heartbeat is due before, monotonic ns; 0: never


# Parse the payload msg[:n] of a pull request; `out` points into it. Return REQUEST_OK or an error, see above.
cdef int next_request(const char *msg, size_t n, NextRequest *out, JsonError *err) noexcept nogil
# Return when the next heartbeat is due, monotonic ns.
cdef int64_t heartbeat_after(int64_t now, int64_t interval) noexcept nogil

# Make a request, to be freed by free() unless it is in a queue. now: monotonic ns. NULL when out of memory.
cdef WaitingRequest *request_new(const NextRequest *req, const char *reply, size_t n, int64_t now) noexcept nogil
# Queue it behind the requests of its priority. False when the queue is full.
cdef bint waitq_add(WaitQueue *q, WaitingRequest *wr) noexcept nogil
# Remove and free it.
cdef void waitq_remove(WaitQueue *q, WaitingRequest *wr) noexcept nogil
# Make the first request the last.
cdef void waitq_cycle(WaitQueue *q) noexcept nogil
# Count one message for the first request and return it. It becomes the last of its priority; when that was its last
# message, it leaves the queue and the caller frees it.
cdef WaitingRequest *waitq_pop(WaitQueue *q) noexcept nogil
# Set the number of messages still to come for a queued request.
cdef void waitq_set_n(WaitQueue *q, WaitingRequest *wr, int64_t n) noexcept nogil
# Free all requests.
cdef void waitq_free(WaitQueue *q) noexcept nogil
# Lower q.due to `when`, monotonic ns; 0 changes nothing.
cdef void waitq_due(WaitQueue *q, int64_t when) noexcept nogil
