"""A connection that subscribes and publishes, whatever protocol its peer speaks.

The owner changes `subs` under the connection's lock; another thread reads it under that lock.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.accounts.guard cimport Guard
from gnats.core.auth.permissions cimport Permissions
from gnats.core.messages.mapped_replies cimport MappedReplies
from gnats.core.net.connection cimport SESSION_CTL, Connection
from gnats.core.runtime.inbox cimport inbox_reading
from gnats.core.runtime.slice cimport Slice
from gnats.core.runtime.turn cimport TURN, turn_begin
from gnats.core.subjects.sublist cimport Subscription
from gnats.core.subjects.subtable cimport SubTable
from gnats.includes.atomics cimport bump64, storei64


cdef enum:
    # requests to the owner; a session numbers its own from SUBSCRIBER_CTL on
    CTL_PERMISSIONS = SESSION_CTL
    CTL_IMPORTS = SESSION_CTL << 1
    SUBSCRIBER_CTL = SESSION_CTL << 2


# Details of a client for services, where an import shares them: members of a JSON object in four adjacent pieces. They
# go before the account, before the round trip time, in place of this server's name (of a leaf node: its own) and after
# the rest of this server's members.
cdef struct ClientDetails:
    uint32_t head_n, mid_n, server_n, tail_n
    char data[1]


cdef class Subscriber(Connection):
    cdef void *account            # borrowed Account to publish and subscribe in; the owner's once started
    cdef uint64_t tracked         # requests of other servers that it got, whose answers are measured; atomic
    cdef uint8_t one_account      # a link that carries one account, which messages do not name
    # of a link; set before it has subscriptions
    cdef uint8_t traces           # the peer knows traces of messages,
    cdef uint8_t origins          # and origins of what comes from leaf nodes; 1: but for LS-; 3: also `_`, no cluster
    cdef uint8_t passes           # and messages that are passed on to queue groups alone (core.routing.route)
    cdef uint8_t spoke            # of a leaf node: the peer is the hub
    cdef uint8_t isolated         # of a leaf node: it is not told of other leaf nodes' interest
    # of a leaf node and of a gateway: the cluster at the other end, or empty; memory of `keep`
    cdef Slice cluster
    # of an outbound gateway: its place among the others, from 0 on; atomic, the control loop writes, publishers read
    cdef int32_t rank
    cdef uint8_t echo             # deliver its own messages to it, too
    cdef uint8_t form             # core.messages.encode.Form of its messages; atomic: the owner writes, or join()
    cdef uint8_t verbose          # answer each of its verbs with +OK
    cdef uint8_t no_responders    # answer its requests with a 503 when no subscriber receives them
    # Replies under which it was sent requests from other clusters; NULL: none. Under lock, and atomic: its owner looks
    # without it, and removes the table.
    cdef MappedReplies *mapped_replies
    cdef Guard guard
    cdef SubTable subs            # by sid; the owner changes it under lock
    cdef SubTable shadows         # in the accounts that `account` imports streams from; by the sid of the original
    cdef uint64_t nsubs           # subscriptions; atomic, the owner writes
    cdef uint32_t leaving_at      # once closed: the slot of the table that the next round of removal begins at
    cdef uint64_t native_sids     # native subscriptions made; the last one's sid
    cdef uint64_t read_msgs, read_bytes   # messages and their bytes published in the current read
    cdef uint64_t read_subs       # subscriptions made and undone in it
    cdef int64_t rtt              # ns, 0 until measured; atomic, the owner writes
    cdef ClientDetails *details   # NULL until set; atomic, replaced as a whole by the control loop
    # under lock: subscriptions that another thread's delivery has exhausted (max reached), for the owner to remove
    cdef Subscription **reap
    cdef uint32_t nreap
    cdef size_t reap_cap

    # Keep `permissions` (None: everything is allowed) alive and leave them in `guard` for the owner to install. Control
    # loop only. Raises MemoryError.
    cdef int stage_permissions(self, Permissions permissions) except -1


# A session calls these before and after it handles the bytes of a read, or bytes that it has kept.
cdef inline void begin_read(Subscriber c, size_t *until) noexcept nogil:
    """Begin a turn. Count what is published in it, and charge the events that it causes to the connection.

    `until` is set to 0 when the turn is over. Then handle the message in hand, and keep the rest.
    """
    turn_begin(&c.ps.turn, until, TURN)
    c.read_msgs = c.read_bytes = c.read_subs = 0
    inbox_reading(&c.source)


cdef inline void end_read(Subscriber c) noexcept nogil:
    inbox_reading(NULL)
    c.ps.turn.until = NULL
    if c.read_msgs:
        bump64(&c.in_msgs, c.read_msgs)
        bump64(&c.in_bytes, c.read_bytes)
        bump64(&c.ps.in_msgs, c.read_msgs)
        bump64(&c.ps.in_bytes, c.read_bytes)
    if c.read_msgs or c.read_subs:
        storei64(&c.last_in, c.ps.now)
    c.read_msgs = c.read_bytes = c.read_subs = 0
