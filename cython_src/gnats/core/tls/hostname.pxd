"""Check that a certificate is one for a host, as Go does (VerifyHostname in crypto/x509)."""
from gnats.includes.openssl cimport X509

# Return whether a host is an address: such a host has no name that a hello could ask for.
cdef bint is_address(const char *host) noexcept nogil
# Return whether one of a certificate's alternative names is this host: an address counts as an address, and the
# subject's common name does not count. Also False without memory.
cdef bint is_for_host(const X509 *cert, const char *host) noexcept nogil
