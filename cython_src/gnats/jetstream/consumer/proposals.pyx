"""What a consumer with replicas has proposed to its Raft group; see proposals.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc

cdef enum:
    FIRST_ROOM = 1024


cdef char *proposals_room(Proposals *q, size_t size) noexcept nogil:
    cdef size_t cap = q.cap
    cdef char *grown
    if q.used + 1 + size > cap:
        cap = max(2 * cap, max(q.used + 1 + size, <size_t> FIRST_ROOM))
        grown = <char *> realloc(q.p, cap)
        if grown == NULL:
            return NULL
        q.p = grown
        q.cap = cap
    return q.p + q.used + 1


cdef void proposals_add(Proposals *q, size_t n) noexcept nogil:
    (<uint8_t *> q.p)[q.used] = <uint8_t> n
    q.used += 1 + n
    q.n += 1


cdef void proposals_free(Proposals *q) noexcept nogil:
    free(q.p)
    q.p = NULL
    q.used = q.cap = 0
