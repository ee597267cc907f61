"""The control plane's inbox: what pollers post for Python, behind one eventfd (ports ipqueue.go).

Each connection has a queue in it, its `Source`, and the queues take turns: one event each. Those whose next event is a
CONNECT, an INFO or the close have every other turn. So nothing that one connection causes is ahead of another's CONNECT,
and what one connection causes stays in order, its EV_CLOSED last.

An event is charged to the connection whose input caused it, its payer, until it is taken out. A connection that has
caused SOURCE_EVENTS or SOURCE_BYTES is parked: it is not read until half of them have been taken. While the inbox has
INBOX_EVENTS or INBOX_BYTES, everybody is parked who has caused an event that waits, until none does, and reads of
others are short. The server's own clients cannot be parked: over INTERNAL_EVENTS or INTERNAL_BYTES of theirs, what
may be dropped is, and counted. Beyond a bound is at most what one read causes.

Lock: one mutex over the queues, their turns and what is charged; a leaf in docs/locks.md. A client is alive as long as
an event names it, or is charged to it: the inbox keeps every client from its first request until its EV_CLOSED, which
its own poller posts last of all, has been drained, no event names it (Source.named), and no poller is in a batch that
began before (another one may post an EV_MSG or EV_TRACE about it until then).
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.includes.atomics cimport load32, load64, unlikely
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

cpdef enum:
    SOURCE_EVENTS = 1024
    SOURCE_BYTES = 1024 * 1024
    INBOX_EVENTS = 64 * 1024
    INBOX_BYTES = 64 * 1024 * 1024
    INTERNAL_EVENTS = 16 * 1024
    INTERNAL_BYTES = 16 * 1024 * 1024
    SHORT_READ = 4096          # bytes that are read at once while the inbox is full


cdef struct Source


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
    void *client      # borrowed core.client.Client, or what kind says; NULL: nothing that must be kept
    Source *about     # the client's; the inbox's own for an EV_JETSTREAM
    Source *payer
    int64_t a
    int64_t b
    char *more        # data that is freed with the event, instead of `data`; NULL: none
    size_t len
    size_t size       # bytes that are charged
    uint32_t part[MSG_PARTS]  # EV_MSG: what each of these takes; the sid follows
    uint8_t kind
    uint8_t lent      # its memory is the connection's
    uint8_t may_drop
    char data[1]


# What a connection has in the inbox. Written under Inbox.lock; n and bytes are atomic, for a look without it.
cdef struct Source:
    Event *head
    Event *tail
    Source *next             # with the others that wait for their turn
    void *owner              # borrowed
    # Called by the control loop, without a lock, when a parked owner may go on; NULL: it cannot be parked.
    void (*resume)(void *owner) noexcept nogil
    uint64_t bytes           # of the events it pays for
    uint32_t n
    uint32_t named           # events that name its owner or are charged to it, and what it owes
    uint8_t parked
    # Its poller's: work that it has asked for (jetstream.turns), and who has its turn after it.
    void *work
    void *work_last
    Source *work_next


cdef struct Turns:
    Source *head
    Source *tail


cdef class Inbox:
    cdef pthread_mutex_t lock
    cdef Turns turns[2]           # whose next event is an ordinary one; is a CONNECT, an INFO or an EV_CLOSED
    cdef uint8_t turn             # of which of them was the last
    cdef Source own               # of events about no connection
    cdef int evfd
    cdef uint64_t queued          # atomic
    cdef uint64_t bytes           # atomic
    cdef uint64_t parked          # sources that are; atomic
    cdef uint64_t parkings        # so far; atomic
    cdef uint64_t dropped         # so far; atomic
    cdef set named                # clients handed to a poller: it may name them, whatever Python does
    cdef list graveyard           # closed clients, until no poller can hold a pointer to them

    # An event with room for `len` bytes of data, NULL when out of memory; a post takes it over.
    cdef Event *new_event(self, uint32_t kind, void *client, Source *about, size_t len) noexcept nogil
    # Into the queue of who it is about.
    cdef void post(self, Event *ev) noexcept nogil
    # Into the queue of the connection whose input is being handled, `causer` when there is none; False: dropped.
    cdef bint post_caused(self, Event *ev, Source *causer) noexcept nogil
    # False when out of memory.
    cdef bint post_data(self, uint32_t kind, void *client, Source *about, int64_t a, int64_t b, const char *data,
                        size_t len) noexcept nogil
    # A stream or a consumer has something to tell.
    cdef Event *jetstream_event(self, void *what, size_t len) noexcept nogil
    cdef void post_jetstream(self, void *what, int64_t a, int64_t b, const char *data, size_t len) noexcept nogil
    # Has it caused too much? Then its resume() is called later.
    cdef bint park(self, Source *payer) noexcept nogil
    # Charge work other than events to the connection whose input is being handled, `causer` when there is none: who is
    # charged, NULL when that is one of the server's own and has caused too much. settle() undoes it.
    cdef Source *owe(self, Source *causer, uint32_t events, size_t size) noexcept nogil
    cdef void settle(self, Source *payer, uint32_t events, size_t size) noexcept nogil
    # The owner is deallocated: drop what is left of it.
    cdef void forget(self, Source *source) noexcept nogil


# Whose input is handled by the calling thread from now on; NULL: nobody's.
cdef void inbox_reading(Source *source) noexcept nogil


cdef inline bint inbox_full(Inbox inbox) noexcept nogil:
    return unlikely(load64(&inbox.queued) > INBOX_EVENTS or load64(&inbox.bytes) > INBOX_BYTES)


cdef inline bint inbox_owes(Source *source) noexcept nogil:
    """Does something wait that it has caused?"""
    return load32(&source.n) != 0
