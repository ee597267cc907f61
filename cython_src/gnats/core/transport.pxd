"""The layers between a connection and its peer: a chain with the socket at its end.

A connection receives from and flushes to the first layer; each layer passes on what it makes of the bytes. Everything
here is the owner's.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from gnats.core.outbound cimport OutQueue
from gnats.core.pollstate cimport PollState
from gnats.core.timers cimport Timer


cdef struct Transport


cdef struct TransportType:
    # The poller has taken over the connection: do what comes before the protocol, then Connection.begin_session().
    # NULL: nothing comes before it.
    void (*begin)(Transport *t) noexcept nogil
    # Read what has come: the first `want` bytes to `to`, what follows to the poller's buffer. Bytes read, 0 at the end,
    # or -errno. A layer that takes its input apart may use more of that buffer than `room` bytes.
    long (*receive)(Transport *t, char *to, size_t want, size_t room) noexcept nogil
    # Pass on what `out` holds: bytes that the socket took, or -errno.
    long (*flush)(Transport *t, OutQueue *out) noexcept nogil
    # Bytes on their way to the socket, kept here and below or in `out`; what may not leave yet does not count.
    size_t (*unsent)(const Transport *t, const OutQueue *out) noexcept nogil
    # The chunks of these, and of what may not leave yet.
    uint32_t (*chunks)(const Transport *t, const OutQueue *out) noexcept nogil
    # Its timer, of kind T_TRANSPORT; NULL: it has none. It has expired.
    Timer *(*timer)(Transport *t) noexcept nogil
    void (*expired)(Transport *t) noexcept nogil
    # The socket is about to be closed: say what there is to say to a peer that reads it.
    void (*end)(Transport *t) noexcept nogil
    # Free the layer with all that it holds; any thread, once no poller knows the connection.
    void (*free)(Transport *t) noexcept nogil


# A layer; the first field of a type with more.
cdef struct Transport:
    const TransportType *type
    Transport *below         # NULL: the socket
    Transport *owned         # the next one to free with the connection
    void *connection         # borrowed core.connection.Connection
    PollState *ps
    int fd
    # The peer has said that it ends: close for this reason when all before it is parsed; 0: it has not. The connection
    # looks at the first layer's, so each layer passes on that of the one below.
    uint32_t ended


# The layer that every connection has; it is part of the connection.
cdef void transport_init_socket(Transport *t, void *connection, PollState *ps, int fd) noexcept nogil
# Put a layer, which is complete, before the first one of a chain.
cdef void transport_push(Transport **first, Transport *t, const TransportType *type) noexcept nogil
# Take a layer out of a chain. It stays among those that are freed with the connection.
cdef void transport_remove(Transport **first, Transport *t) noexcept nogil
