"""The pin of a priority group: the id of the one client that a consumer with pinned clients serves (consumer.go).

The consumer's lock is held.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t
from libc.string cimport memcmp

from gnats.core.net.pollstate cimport PollState

cdef enum:
    PIN_N = 22               # characters of a pin


cdef struct Pin:
    char id[PIN_N]
    bint held                # a client has it
    int64_t ts               # since when, ns since 1970
    int64_t ends_at          # when its time is over, monotonic ns; 0: no client has it


# Make a pin, for a client to have until `ttl` ns after its last request.
cdef void pin_assign(Pin *pin, PollState *ps, int64_t ttl) noexcept nogil
cdef void unassign_pin(Pin *pin) noexcept nogil
# Let the pin's time begin anew.
cdef void set_pinned_timer(Pin *pin, int64_t now, int64_t ttl) noexcept nogil


cdef inline bint has_pin(const Pin *pin, const char *id, size_t n) noexcept nogil:
    """Return whether a client that sends this id has the pin."""
    return pin.held and n == PIN_N and memcmp(id, pin.id, PIN_N) == 0
