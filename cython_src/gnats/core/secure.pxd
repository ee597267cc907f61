"""A connection that may speak TLS (the TLS part of createClientEx and doTLSHandshake): how it gets there, and its I/O.

Everything here is the owner's, like the rest of a connection; what a handshake has settled may be read by any thread.
"""
from gnats.core.connection cimport Connection
from gnats.core.tlsstate cimport Tls


cdef class SecureConnection(Connection):
    cdef Tls *tls_state           # what `tls` points to, until this object goes; set before the start

    cdef void tls_clear_info(self) noexcept nogil
    cdef void tls_start_handshake(self) noexcept nogil
    cdef void tls_fall_back(self) noexcept nogil
    cdef void tls_become_plain(self) noexcept nogil
    cdef bint tls_sniff(self) noexcept nogil
    cdef bint tls_go_on(self) noexcept nogil
    cdef void tls_complete(self) noexcept nogil
    cdef void tls_failed(self, long code) noexcept nogil
