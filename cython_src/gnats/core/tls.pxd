"""TLS by OpenSSL (crypto/tls): contexts made of certificates and rules, and the steps of a connection that has one.

OpenSSL reads from and writes to memory here, never the socket: the connection reads many records with one system call
and writes many with one, and a handshake that waits costs nothing. A context does not change once a connection uses
it; a reload makes another one. Its counter of handshakes is under `lock`, a leaf.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t

from gnats.core.tlsstate cimport Tls, TLSBase
from gnats.includes.openssl cimport EVP_PKEY, SSL_CTX, X509, X509_stack
from gnats.includes.pthread cimport pthread_mutex_t


cdef struct Certificate:
    X509 *cert
    EVP_PKEY *key
    X509_stack *chain


cdef struct Certificates:
    Certificate *items
    int n


cdef class TLSContext(TLSBase):
    cdef SSL_CTX *ctx
    cdef Certificates certificates
    cdef char *pinned             # digests of public keys, 32 bytes each
    cdef size_t npinned
    cdef bint has_pinned
    cdef readonly bint verify     # a client must have a certificate
    # connection_rate_limit
    cdef pthread_mutex_t lock
    cdef int64_t limit, count, blocked, window_end

    cdef int settle(self, Tls *t) noexcept nogil
    cdef bint is_pinned(self, Tls *t) noexcept nogil
