"""The control plane's inbox: what pollers post for Python, in order, behind one eventfd (ports ipqueue.go).

Lock: one mutex over the list; a leaf in docs/locks.md. A client is alive as long as an event names it: the inbox keeps
every client from its first request until its EV_CLOSED, which its own poller posts last of all, has been drained and no
poller is in a batch that began before (another one may post an EV_MSG or EV_TRACE about it until then).
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.includes.pthread cimport pthread_mutex_t

cpdef enum:
    EV_CONNECT = 1
    EV_INFO = 2
    EV_CLOSED = 3
    EV_LOG = 4
    EV_TRACE = 5
    EV_MSG = 6
    EV_RESPONSES = 7    # an account expects responses; a: of which export
    # a request was measured; a: of which export; b: its status; data: core.responses.Measured, header
    EV_LATENCY = 8
    EV_MSG_TRACE = 9    # a message was traced; data: core.msgtrace.TraceHead, header, destination, entries
    EV_JETSTREAM = 10   # client: a stream or a consumer, which has something to tell; a: what


# What an EV_MSG has, in this order. ASKER_PART and ACCOUNT_PART are who asks as the data plane knows it, both as JSON:
# the requester (ClientInfo), empty where the message came through no imported service, and the name of the account
# that is meant: the one that imports the service, or else the producer's.
cdef enum:
    SUBJECT_PART = 0
    REPLY_PART = 1
    HEADER_PART = 2
    PAYLOAD_PART = 3
    ASKER_PART = 4
    ACCOUNT_PART = 5
    MSG_PARTS = 6


cdef struct Event:
    Event *next
    void *client      # borrowed core.client.Client
    int64_t a
    int64_t b
    uint32_t kind
    uint32_t part[MSG_PARTS]  # EV_MSG: what each of these takes; the sid follows
    size_t len
    char data[1]


cdef class Inbox:
    cdef pthread_mutex_t lock
    cdef Event *head
    cdef Event *tail
    cdef int evfd
    cdef uint64_t queued          # atomic
    cdef set named                # clients handed to a poller: it may name them, whatever Python does
    cdef list graveyard           # closed clients, until no poller can hold a pointer to them

    # An event with room for `len` bytes of data, NULL when out of memory; post() takes it over.
    cdef Event *new_event(self, uint32_t kind, void *client, size_t len) noexcept nogil
    cdef void post(self, Event *ev) noexcept nogil
    cdef void post_data(
        self, uint32_t kind, void *client, int64_t a, int64_t b, const char *data, size_t len) noexcept nogil
