"""A message on its way into a stream; see inbound.pxd."""
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.jetstream.state.headers cimport parse_headers

cdef enum:
    HEADER_MORE = 128               # bytes that a copied header may grow by


cdef bint own_header(Inbound *m) noexcept nogil:
    cdef char *copy = <char *> malloc(m.hdr_n + HEADER_MORE)
    if copy == NULL:
        return False
    memcpy(copy, m.hdr, m.hdr_n)
    free(m.owned)
    m.owned = m.hdr = copy
    parse_headers(m.hdr, m.hdr_n, &m.h)
    return True
