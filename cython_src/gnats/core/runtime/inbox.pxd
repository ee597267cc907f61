"""The control plane's inbox: events that pollers post for Python, behind one eventfd (ports ipqueue.go).

Each connection has a queue in it, its `Source`, and the queues take turns, one event each. Queues whose next event is a
CONNECT, an INFO or the close have every other turn. So a thousand events of one connection are not ahead of another's
CONNECT, and a connection's own events stay in order, its EV_CLOSED last.

Until it is taken out, an event is charged to its *payer*: the connection whose input caused it. A payer with more than
SOURCE_EVENTS or SOURCE_BYTES is *parked*: not read until half of them are taken. While the inbox holds more than
INBOX_EVENTS or INBOX_BYTES, every payer is parked until nothing of it waits, and reads of other connections are short.
The server's own clients cannot be parked: over INTERNAL_EVENTS or INTERNAL_BYTES, their events that may be dropped are
dropped and counted. Each bound can be exceeded by the events that one turn causes.

A route or a gateway carries many accounts, and to park it would stall them all. So what an account's clients cause over
it is charged to that account's *share* of the link, which has a queue of its own and is dropped from, like the server's
own clients. All shares of a link together have LINK_EVENTS and LINK_BYTES; a share may take as much as is left, so one
account gets half of it, two a third each, and another one always finds room.

Lock: one mutex over the queues, their order and the charges; a leaf in docs/locks.md.

A client lives as long as an event names it or is charged to it. The inbox keeps a client from its first request until
its EV_CLOSED (the last event that its own poller posts) is drained, no event names it (Source.named), and no poller is
in a batch that began before: until then another poller may post an EV_MSG or EV_TRACE about it.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.includes.atomics cimport load32, load64, unlikely
from gnats.includes.pthread cimport pthread_mutex_t

cpdef enum:
    EV_CONNECT = 1      # data: the argument of the verb
    EV_INFO = 2         # data: the argument of the verb
    EV_CLOSED = 3       # a: ClosedState; b: subscriptions; data: these as subtable_text() writes them
    EV_LOG = 4          # a: a parser's Violation or a LogCode; b, data: see there
    EV_TRACE = 5        # a: TraceCode; b: 1 when data is cut off; data: a line or a payload
    # a: the publisher's connection id; b: its PRODUCER_; data: MSG_PARTS parts, then the subscription's sid
    EV_MSG = 6
    EV_RESPONSES = 7    # a service began to wait for responses, watch their expiry; a: the export's id
    # a request was measured; a: the export's id; b: its status; data: core.messages.responses.Measured, header
    EV_LATENCY = 8
    EV_MSG_TRACE = 9    # a message was traced; data: core.messages.msgtrace.TraceHead, header, destination, entries
    EV_PONG = 11        # of a link: the PING that the control plane wanted was answered
    EV_BEGUN = 12       # of a link: its session has begun, after the handshake of TLS if there is one
    EV_LEAF = 13        # of a leaf node: a: core.links.leaf_session.LeafEvent; data: see there
    # a client got a request of another server, whose answer is measured; a: the client's connection id; b: monotonic
    # ns; data: reply SP subject
    EV_TRACKED = 14
    EV_ANSWERED = 15    # a client that got such a request answers; a, b: as EV_TRACKED; data: the reply
    EV_JETSTREAM = 10   # client: a stream or a consumer; a: the kind of its notice

# What sent a message to the server: its events are believed if they are of other servers.
cpdef enum:
    PRODUCER_CLIENT = 0        # a client, or a leaf node whose account is not the system account
    PRODUCER_CLUSTER = 1       # a route, or a gateway
    PRODUCER_LEAF = 2          # a leaf node in the system account

cpdef enum:
    SOURCE_EVENTS = 1024
    SOURCE_BYTES = 1024 * 1024
    INBOX_EVENTS = 64 * 1024
    INBOX_BYTES = 64 * 1024 * 1024
    SHARES = 64                # accounts that have a share of one link at a time; further ones have one together
    LINK_EVENTS = 2 * SOURCE_EVENTS
    LINK_BYTES = 2 * SOURCE_BYTES
    INTERNAL_EVENTS = 16 * 1024
    INTERNAL_BYTES = 16 * 1024 * 1024
    SHORT_READ = 4096          # bytes of one read while the inbox is full


cdef struct Source
cdef struct Shares


# The parts of an EV_MSG, in this order. REQUESTER_PART and ACCOUNT_PART name the requester as the data plane knows it,
# in JSON. REQUESTER_PART is its ClientInfo, empty when the message came through no imported service. ACCOUNT_PART is
# the name of its account: the importing one, or else the publisher's.
cdef enum:
    SUBJECT_PART = 0
    REPLY_PART = 1
    HEADER_PART = 2
    PAYLOAD_PART = 3
    REQUESTER_PART = 4
    ACCOUNT_PART = 5
    MSG_PARTS = 6


cdef struct Event:
    Event *next
    void *client      # borrowed core.net.connection.Connection, or an object that `kind` says; NULL: none to keep
    Source *about     # the client's; the inbox's own for an EV_JETSTREAM
    Source *payer
    int64_t a
    int64_t b
    char *more        # data instead of `data`, freed with the event; NULL: none
    size_t len        # bytes of data
    size_t size       # bytes that are charged
    uint32_t part[MSG_PARTS]  # EV_MSG: bytes of each part; the sid follows them
    uint8_t kind
    uint8_t lent      # part of the connection's memory: do not free it
    uint8_t may_drop  # when its payer cannot be parked and is over its bound
    char data[1]


# A connection's part of the inbox. Written under Inbox.lock; n, bytes and named are atomic, for a look without it.
cdef struct Source:
    Event *head
    Event *tail
    Source *next             # in a SourceQueue
    void *owner              # borrowed
    # Called by the control loop, without a lock, when a parked owner may be read again. NULL: it cannot be parked.
    void (*resume)(void *owner) noexcept nogil
    uint64_t bytes           # of the events it pays for
    uint32_t n               # events that it pays for
    uint32_t named           # events that name its owner or are charged to it, and charges of owe()
    uint8_t parked
    Shares *shares           # of a link: its accounts'; of a share: those that it belongs to; set once
    # Its poller's (jetstream.engine.longwork): pieces of work that it has asked for, and the source whose turn is next.
    void *work
    void *work_last
    Source *work_next


# What accounts have caused over one link. Under Inbox.lock.
cdef struct Shares:
    Source *link
    uint32_t n               # events that all of them pay for
    uint64_t bytes           # of these
    uint32_t keys[SHARES]    # hashes of accounts; a share that pays for nothing is free for another account
    Source all[SHARES + 1]   # the last one is that of accounts which find no other


# Sources that have events, in the order in which they are served.
cdef struct SourceQueue:
    Source *head
    Source *tail


cdef class Inbox:
    cdef pthread_mutex_t lock
    cdef SourceQueue waiting[2]   # [1]: sources whose next event is a CONNECT, an INFO or an EV_CLOSED; [0]: others
    cdef uint8_t served           # the index of the one that was served last
    cdef Source own               # of events about no connection
    cdef int evfd
    cdef uint64_t queued          # events; atomic, like the next four
    cdef uint64_t bytes           # of these
    cdef uint64_t parked          # sources that are parked
    cdef uint64_t parkings        # times that a source was parked
    cdef uint64_t dropped         # events dropped
    cdef set named                # clients that a poller may name: the inbox keeps them alive
    cdef list graveyard           # closed clients, until no poller can hold a pointer to them

    # Make an event with room for `len` bytes of data; NULL when out of memory. A post takes it over.
    cdef Event *new_event(self, uint32_t kind, void *client, Source *about, size_t len) noexcept nogil
    # Put an event into the queue of the connection that it is about.
    cdef void post(self, Event *ev) noexcept nogil
    # Put an event into the queue of the connection whose input this thread handles, else of `causer`. False: dropped.
    # `account`: a hash of the account whose share of that connection it goes to, if it is a link; 0: to none.
    cdef bint post_caused(self, Event *ev, Source *causer, uint32_t account) noexcept nogil
    # Make and post an event with a copy of `data`; False when out of memory.
    cdef bint post_data(self, uint32_t kind, void *client, Source *about, int64_t a, int64_t b, const char *data,
                        size_t len) noexcept nogil
    # As new_event and post_data, for a stream or a consumer.
    cdef Event *jetstream_event(self, void *what, size_t len) noexcept nogil
    cdef void post_jetstream(self, void *what, int64_t a, int64_t b, const char *data, size_t len) noexcept nogil
    # Park a payer if it is over a bound: True, and its resume() is called later.
    cdef bint park(self, Source *payer) noexcept nogil
    # Charge work other than events to the connection whose input this thread handles, else to `causer`. Return the
    # payer; NULL, and nothing is charged, when it cannot be parked and is over its bound. settle() undoes the charge.
    cdef Source *owe(self, Source *causer, uint32_t events, size_t size) noexcept nogil
    cdef void settle(self, Source *payer, uint32_t events, size_t size) noexcept nogil
    # Drop the events of a source whose owner is being deallocated, and its shares.
    cdef void forget(self, Source *source) noexcept nogil


# Have the accounts behind a link pay for themselves. Without memory for that, the link pays for all.
cdef void inbox_divide(Source *link) noexcept nogil
# Set the connection whose input the calling thread handles from now on; NULL: none.
cdef void inbox_reading(Source *source) noexcept nogil


cdef inline bint inbox_full(Inbox inbox) noexcept nogil:
    return unlikely(load64(&inbox.queued) > INBOX_EVENTS or load64(&inbox.bytes) > INBOX_BYTES)


cdef inline bint inbox_owes(Source *source) noexcept nogil:
    """Return whether an event that this source pays for waits."""
    return load32(&source.n) != 0
