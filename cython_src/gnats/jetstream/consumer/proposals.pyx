"""What a consumer with replicas has proposed to its Raft group; see proposals.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint16_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

cdef enum:
    FIRST_ROOM = 1024


cdef char *proposals_room(Proposals *q, size_t size) noexcept nogil:
    cdef size_t cap = q.cap
    cdef char *grown
    if q.used + LENGTH + size > cap:
        cap = max(2 * cap, max(q.used + LENGTH + size, <size_t> FIRST_ROOM))
        grown = <char *> realloc(q.p, cap)
        if grown == NULL:
            return NULL
        q.p = grown
        q.cap = cap
    return q.p + q.used + LENGTH


cdef void proposals_add(Proposals *q, size_t n) noexcept nogil:
    cdef uint16_t length = <uint16_t> n
    memcpy(q.p + q.used, &length, LENGTH)
    q.used += LENGTH + n
    q.n += 1


cdef void proposals_free(Proposals *q) noexcept nogil:
    free(q.p)
    q.p = NULL
    q.used = q.cap = 0
