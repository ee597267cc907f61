"""Switches that a server's pollers read, and counters that they write. All are atomic but the table of pollers."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef enum:
    MAX_POLLERS = 64    # a set of pollers is a uint64_t (core.net.pollstate.poller_bit)


# What requests to services say of the requester's server: members of a JSON object, each behind a comma.
cdef struct ServerDetails:
    uint32_t n
    uint32_t server_n      # bytes of the member that names the server, which comes first
    char data[1]


cdef class ServerState:
    cdef void *pollers[MAX_POLLERS]   # PollState by index; set before the first connection
    cdef uint8_t _debug, _trace, _trace_verbose, _trace_headers, _no_stall
    cdef void *gateways               # a core.routing.gateway_reply.GatewayTable; NULL: there are none
    cdef ServerDetails *details       # NULL until set; the control loop replaces it as a whole, and retires the old one
    cdef uint64_t _max_traced         # bytes of a payload that a trace shows; 0: all of it
    cdef uint64_t _slow_consumers, _stale_connections, _stalls
