"""The TLS state of a connection; see tlsstate.pxd."""
from libc.stddef cimport size_t

from gnats.core.net.outbound cimport OutQueue


cdef class TLSBase:
    """The part of core.tls.tls.TLSContext that connections call; that overrides all of it."""

    cdef bint open(self, Tls *t) noexcept nogil:
        return False

    cdef int handshake(self, Tls *t) noexcept nogil:
        return TLS_ERROR

    cdef long decrypt(self, Tls *t, char *p, size_t n) noexcept nogil:
        return TLS_ERROR

    cdef bint inside_record(self, Tls *t) noexcept nogil:
        return False

    cdef bint encrypt(self, Tls *t, OutQueue *out, size_t enough) noexcept nogil:
        return False

    cdef void close(self, Tls *t) noexcept nogil:
        pass

    cdef bint allow(self) noexcept nogil:
        return True
