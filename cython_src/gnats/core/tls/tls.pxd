"""TLS by OpenSSL (crypto/tls): contexts, made of certificates and rules, and the steps of a TLS connection.

OpenSSL reads from memory and writes to memory, never the socket: a connection reads or writes many records with one
system call, and a handshake that waits occupies no thread. A context never changes once a connection uses it; a reload
makes another one. Its count of handshakes is under `lock`, a leaf.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t

from gnats.core.tls.tlsstate cimport Tls, TLSBase
from gnats.includes.openssl cimport EVP_PKEY, SSL_CTX, X509, X509_stack
from gnats.includes.pthread cimport pthread_mutex_t


cdef struct Certificate:
    X509 *cert
    EVP_PKEY *key
    X509_stack *chain


# In the order in which they were added.
cdef struct Certificates:
    Certificate *items
    int n


cdef class TLSContext(TLSBase):
    cdef SSL_CTX *ctx
    cdef Certificates certificates
    cdef char *pinned             # SHA-256 digests of public keys, 32 bytes each
    cdef size_t npinned
    cdef bint has_pinned          # a peer's key must be one of these
    cdef readonly bint verify     # peers must show a certificate
    # connection_rate_limit: handshakes a second, in this second, refused; end of the second in monotonic ns
    cdef pthread_mutex_t lock
    cdef int64_t limit, count, blocked, window_end

    cdef int settle(self, Tls *t) noexcept nogil
    cdef bint is_pinned(self, Tls *t) noexcept nogil
