"""PING and PONG: notice that a peer has gone, and measure its round trip time. The owner calls all functions."""
from libc.stdint cimport int32_t, int64_t

from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.runtime.timers cimport Timer


cdef struct Pings:
    Timer timer
    int64_t interval       # ns; 0: no PINGs
    int64_t rtt_start      # monotonic ns when the last PING was sent
    int32_t max            # PINGs that may be unanswered; one more closes the connection
    int32_t out            # PINGs unanswered


# Set the timer for the next PING.
cdef void start_ping_timer(Subscriber c, Pings *p) noexcept nogil
# Send the first PING soon, for the round trip time: after a client's CONNECT, after the beginning of a link.
cdef void set_first_ping_timer(Subscriber c, Pings *p) noexcept nogil
# Handle the expired timer: send a PING if the client was quiet or its round trip time is due, and to a link in any
# case; close it when too many PINGs are unanswered.
cdef void process_ping_timer(Subscriber c, Pings *p) noexcept nogil
# Wait for the peer to settle the terms of the connection: close it when it has not as long as PINGs may take. Set the
# timer anew for the first PING once it has.
cdef void set_settling_timer(Subscriber c, Pings *p) noexcept nogil
# Close a connection whose peer does not answer.
cdef void close_stale(Subscriber c) noexcept nogil
# Send a PING now.
cdef void send_ping(Subscriber c, Pings *p) noexcept nogil
# Handle a PONG.
cdef void pong_received(Subscriber c, Pings *p) noexcept nogil
# Change the limits; a new interval (ns) counts from now.
cdef void set_ping_limits(Subscriber c, Pings *p, int64_t interval, int32_t max) noexcept nogil
