"""The messages of an account that go over links, by kind of link (stats of Account in accounts.go).

Each poller counts in a place of its own, which lies in cache lines of its own. Readers add the places up.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t

from gnats.core.runtime.state cimport ServerState

cdef enum:
    LINK_KINDS = 3         # routes, gateways, leaf nodes: link_place()


# Messages, and bytes of their headers and payloads. Atomic: the poller writes, any thread reads.
cdef struct LinkCounts:
    uint64_t in_msgs, in_bytes, out_msgs, out_bytes


# What one poller counts.
cdef struct LinkTraffic:
    LinkCounts of[LINK_KINDS]
    uint64_t unused[4]     # fills two cache lines


cdef inline int link_place(int kind) noexcept nogil:
    """Return the place in LinkTraffic.of for ROUTER, GATEWAY or LEAF of core.runtime.kinds."""
    return kind >> 1


# Return counters for the n[0] pollers of a server, by PollState.index, to be freed; NULL: no memory.
cdef LinkTraffic *link_traffic_new(ServerState server, size_t *n) noexcept nogil
