"""The messages of an account that go over links; see link_traffic.pxd."""
from libc.stddef cimport size_t
from libc.string cimport memset

from gnats.core.runtime.kinds cimport GATEWAY, LEAF, ROUTER
from gnats.core.runtime.state cimport MAX_POLLERS, ServerState
from gnats.includes.layout cimport static_assert

cdef enum:
    CACHE_LINE = 64

cdef extern from "stdlib.h" nogil:
    void *aligned_alloc(size_t alignment, size_t size)


cdef LinkTraffic *link_traffic_new(ServerState server, size_t *n) noexcept nogil:
    cdef LinkTraffic *fresh
    static_assert(sizeof(LinkTraffic) % CACHE_LINE == 0)
    static_assert(ROUTER >> 1 == 0)   # link_place()
    static_assert(GATEWAY >> 1 == 1)
    static_assert(LEAF >> 1 == LINK_KINDS - 1)
    n[0] = MAX_POLLERS
    while n[0] and server.pollers[n[0] - 1] == NULL:
        n[0] -= 1
    fresh = <LinkTraffic *> aligned_alloc(CACHE_LINE, n[0] * sizeof(LinkTraffic))
    if fresh != NULL:
        memset(fresh, 0, n[0] * sizeof(LinkTraffic))
    return fresh
