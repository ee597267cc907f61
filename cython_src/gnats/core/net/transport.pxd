"""The layers between a connection and its peer: a chain with the socket at its end.

A connection receives from the first layer and flushes to it; each layer works on the bytes and uses the one below. Only
the owner calls these functions.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from gnats.core.net.outbound cimport OutQueue
from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.timers cimport Timer


cdef struct Transport


cdef struct TransportType:
    # The poller has taken over the connection: do what comes before the protocol (a handshake), then call
    # Connection.begin_session(). NULL: nothing comes before it.
    void (*begin)(Transport *t) noexcept nogil
    # Read: the first `want` bytes to `to`, the rest to the poller's buffer. Return the bytes read, 0 at the end, or
    # -errno. A layer that decodes its input may use more of that buffer than `room` bytes.
    long (*receive)(Transport *t, char *to, size_t want, size_t room) noexcept nogil
    # Return whether input has come that receive() hands on without reading below. NULL: there never is any.
    bint (*more)(const Transport *t) noexcept nogil
    # Send what `out` holds. Return the bytes that the socket took, or -errno.
    long (*flush)(Transport *t, OutQueue *out) noexcept nogil
    # Return the bytes that wait for the socket, in `out`, here and below, less those that may not leave yet.
    size_t (*unsent)(const Transport *t, const OutQueue *out) noexcept nogil
    # Return the number of chunks that hold these, and what may not leave yet.
    uint32_t (*chunks)(const Transport *t, const OutQueue *out) noexcept nogil
    # Return its timer, of kind T_TRANSPORT. NULL: it has none.
    Timer *(*timer)(Transport *t) noexcept nogil
    # Its timer has expired.
    void (*expired)(Transport *t) noexcept nogil
    # The socket is about to be closed: send the peer the end of the layer's stream, if it still reads.
    void (*end)(Transport *t) noexcept nogil
    # Free the layer and all that it holds. Any thread, once no poller has the connection.
    void (*free)(Transport *t) noexcept nogil


# A layer; the first field of the struct of each type.
cdef struct Transport:
    const TransportType *type
    Transport *below         # NULL: the socket
    Transport *owned         # the next one to free with the connection
    void *connection         # borrowed core.net.connection.Connection
    PollState *ps
    int fd
    # ClosedState, not 0 once the peer has ended its side: close with it when all bytes before are parsed. The
    # connection looks at the first layer's field, so each layer copies that of the one below.
    uint32_t ended


# Set up the socket's layer, which is part of every connection.
cdef void transport_init_socket(Transport *t, void *connection, PollState *ps, int fd) noexcept nogil
# Put a layer, fully set up, before the first one of a chain.
cdef void transport_push(Transport **first, Transport *t, const TransportType *type) noexcept nogil
# Take a layer out of a chain. It stays among those to free with the connection.
cdef void transport_remove(Transport **first, Transport *t) noexcept nogil
