"""PING and PONG between the server and a peer: is it still there, and how far away is it? All the owner's."""
from libc.stdint cimport int32_t, int64_t

from gnats.core.subscriber cimport Subscriber
from gnats.core.timers cimport Timer


cdef struct Pings:
    Timer timer
    int64_t interval       # ns; 0: none are sent
    int64_t rtt_start      # when the last PING was sent
    int32_t max            # more of them without an answer close the connection
    int32_t out            # without an answer so far


cdef void start_ping_timer(Subscriber c, Pings *p) noexcept nogil
# The peer has shown who it is: ping it soon, for its round trip time.
cdef void set_first_ping_timer(Subscriber c, Pings *p) noexcept nogil
cdef void process_ping_timer(Subscriber c, Pings *p) noexcept nogil
cdef void pong_received(Subscriber c, Pings *p) noexcept nogil
cdef void set_ping_limits(Subscriber c, Pings *p, int64_t interval, int32_t max) noexcept nogil
