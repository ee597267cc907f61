"""Check that a certificate is one for a host; see hostname.pxd. OpenSSL's own check is stricter with wildcards."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp, memcpy, memset, strlen

from gnats.includes.linux cimport AF_INET, AF_INET6, inet_pton
from gnats.includes.openssl cimport (
    ASN1_STRING,
    GEN_DNS,
    GEN_IPADD,
    GENERAL_NAMES,
    X509,
    ASN1_STRING_get0_data,
    ASN1_STRING_length,
    ERR_clear_error,
    GENERAL_NAME_get0_value,
    GENERAL_NAMES_free,
    NID_subject_alt_name,
    X509_free,
    X509_get_ext_d2i,
    d2i_X509,
    sk_GENERAL_NAME_num,
    sk_GENERAL_NAME_value,
)

cdef enum:
    ADDRESS = 16     # bytes of an IPv6 address; one of IPv4 is written as ::ffff:a.b.c.d
    MAPPED = 12      # bytes before an IPv4 address there


cdef bint is_address(const char *host) noexcept nogil:
    cdef uint8_t[ADDRESS] address
    return read_address(host, address)


cdef bint is_for_host(const X509 *cert, const char *host) noexcept nogil:
    cdef uint8_t[ADDRESS] wanted
    cdef uint8_t[ADDRESS] address
    cdef bint numeric = read_address(host, wanted)
    cdef GENERAL_NAMES *names = <GENERAL_NAMES *> X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL)
    cdef const ASN1_STRING *text
    cdef const uint8_t *name
    cdef size_t n
    cdef int i, kind = 0
    cdef bint found = False
    ERR_clear_error()
    if names == NULL:
        return False
    for i in range(sk_GENERAL_NAME_num(names)):
        text = <const ASN1_STRING *> GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, i), &kind)
        if kind != (GEN_IPADD if numeric else GEN_DNS):
            continue
        name = ASN1_STRING_get0_data(text)
        n = <size_t> ASN1_STRING_length(text)
        if numeric:
            found = put_address(name, n, address) and memcmp(address, wanted, ADDRESS) == 0
        else:
            found = same_name(<const char *> name, n, host, strlen(host))
        if found:
            break
    GENERAL_NAMES_free(names)
    return found


cdef bint put_address(const uint8_t *address, size_t n, uint8_t *to) noexcept nogil:
    """Write an address of 4 or 16 bytes in the form of IPv6; False for other lengths."""
    if n != ADDRESS and n != ADDRESS - MAPPED:
        return False
    memset(to, 0, MAPPED)
    to[10] = to[11] = 0xff
    memcpy(to + ADDRESS - n, address, n)
    return True


cdef bint read_address(const char *host, uint8_t *to) noexcept nogil:
    cdef uint8_t[ADDRESS] address
    if inet_pton(AF_INET, host, address) == 1:
        return put_address(address, ADDRESS - MAPPED, to)
    return inet_pton(AF_INET6, host, address) == 1 and put_address(address, ADDRESS, to)


cdef bint same_name(const char *pattern, size_t n, const char *host, size_t m) noexcept nogil:
    """Return whether a certificate's name is a host's. Its first label may be "*", which is any one label."""
    cdef const char *dot
    if n > 2 and pattern[0] == c'*' and pattern[1] == c'.':
        dot = <const char *> memchr(host, c'.', m)
        if dot == NULL or not is_host_name(host, m):
            return False
        pattern += 1
        n -= 1
        m -= dot - host
        host = dot
    return n == m and n > 0 and same_letters(pattern, host, n)


cdef bint is_host_name(const char *host, size_t n) noexcept nogil:
    """Return whether a name has labels of letters, digits, "-" and "_" only."""
    cdef bint begins = True
    cdef size_t i
    for i in range(n):
        if host[i] == c'.':
            if begins:
                return False
            begins = True
            continue
        if not (
            c'a' <= lower(host[i]) <= c'z' or c'0' <= host[i] <= c'9' or host[i] == c'_'
            or (host[i] == c'-' and not begins)
        ):
            return False
        begins = False
    return not begins


cdef bint same_letters(const char *a, const char *b, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        if lower(a[i]) != lower(b[i]):
            return False
    return True


cdef inline char lower(char letter) noexcept nogil:
    return letter + 32 if c'A' <= letter <= c'Z' else letter


def matches_host(bytes der not None, bytes host not None) -> bool:
    """Return whether a certificate (DER) is one for a host. Raises ValueError for anything but a certificate."""
    cdef const unsigned char *at = <const unsigned char *> PyBytes_AS_STRING(der)
    cdef X509 *cert = d2i_X509(NULL, &at, PyBytes_GET_SIZE(der))
    cdef bint found
    ERR_clear_error()
    if cert == NULL:
        raise ValueError("not a certificate")
    found = is_for_host(cert, host)
    X509_free(cert)
    return found
