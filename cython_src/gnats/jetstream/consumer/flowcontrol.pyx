"""The flow control of a push consumer; see flowcontrol.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from gnats.core.net.pollstate cimport PollState, poller_random
from gnats.core.runtime.slice cimport Slice
from gnats.includes.base62 cimport BASE, DIGITS

cdef enum:
    FC_MAX = 32 * 1024 * 1024  # the most bytes under way; the first window is a 16th
    ID_N = 4                   # characters of the id of a request


cdef bint flow_init(FlowControl *f, const char *prefix, size_t n) noexcept nogil:
    f.fcid = <char *> malloc(n + ID_N)
    if f.fcid == NULL:
        return False
    memcpy(f.fcid, prefix, n)
    f.prefix_n = n
    return True


cdef void flow_start(FlowControl *f) noexcept nogil:
    f.pblimit = FC_MAX
    f.maxpb = FC_MAX // 16


cdef void flow_free(FlowControl *f) noexcept nogil:
    free(f.fcid)


cdef bint need_flow_control(FlowControl *f, int64_t size, bint full) noexcept nogil:
    if f.fcid_n == 0:
        return f.pbytes > f.maxpb // 2 or full
    if f.pbytes - f.fcsz >= f.maxpb:
        f.fcsz += size
    return False


cdef void flow_request(FlowControl *f, PollState *ps) noexcept nogil:
    cdef int i
    for i in range(ID_N):
        f.fcid[f.prefix_n + i] = DIGITS[poller_random(ps) % BASE]
    f.fcid_n = f.prefix_n + ID_N
    f.fcsz = f.pbytes


cdef bint flow_answered(FlowControl *f, const Slice *subject) noexcept nogil:
    if subject.n != f.fcid_n or memcmp(subject.p, f.fcid, f.fcid_n) != 0:
        return False
    if f.maxpb < f.pblimit:
        f.maxpb = min(2 * f.maxpb, f.pblimit)
    f.pbytes = max(f.pbytes - f.fcsz, <int64_t> 0)
    f.fcid_n = 0
    f.fcsz = 0
    return True
