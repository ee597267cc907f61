"""The TLS state of a connection, without OpenSSL: a server without TLS never loads that.

core.tls.tls.TLSContext implements `TLSBase`. Only the owner of its connection touches a Tls, but any thread may read
the fields behind `ready` once `ready` is set.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gnats.core.net.outbound cimport OutQueue
from gnats.core.net.transport cimport Transport
from gnats.core.runtime.timers cimport Timer

# Phases of a connection. Its own queue leaves only in TLS_OPEN.
cdef enum TLSPhase:
    TLS_WAIT = 1         # handshake first, with a fallback: no byte has come or gone
    TLS_SNIFF = 2        # the greeting has gone in clear; the first byte shows whether the client speaks TLS
    TLS_HANDSHAKE = 3
    TLS_OPEN = 4
    TLS_FAILED = 5       # OpenSSL must not be called any more

cdef enum:
    TLS_MORE = 0         # results of a step besides a count: it needs more input
    TLS_CLOSED = -1      # the peer has ended the stream
    TLS_ERROR = -2       # see error_code, error_text and verify_error

cdef enum:
    TLS_ERROR_TEXT = 160
    TLS_EOF = -1         # values of error_code, besides OpenSSL's packed codes
    TLS_SYSCALL = -2
    TLS_NOT_PINNED = -3
    TLS_NO_MEMORY = -4


cdef struct Tls:
    Transport base
    Timer timer          # for the handshake, and what comes before it
    void *ssl            # SSL, from TLS_HANDSHAKE on, while the connection is open
    void *context        # borrowed TLSBase
    uint8_t phase
    uint8_t first        # the handshake comes before the greeting
    uint8_t mixed        # the client may go on without TLS
    uint8_t insecure     # of a server that is dialled: do not verify its certificate
    uint8_t eof          # the end of the stream has been read, behind bytes to be parsed first
    char *host           # the host that was dialled; NULL: the peer has dialled
    double timeout       # seconds for the handshake
    double fallback      # seconds to wait for a hello before the greeting goes in clear; 0: the handshake comes first
    OutQueue wire        # bytes to send: records, or the greeting in clear
    const char *input    # records read from the socket that OpenSSL has not taken
    size_t input_len
    char *secure_greeting   # to send after a handshake that comes first
    size_t secure_n
    char *clear_greeting    # to send in clear
    size_t clear_n
    # why the handshake failed
    long error_code
    int verify_error     # X509_V_ERR, or for TLS_SYSCALL an errno
    uint8_t wrong_host   # the peer's certificate is not one for `host`
    uint8_t probe        # the peer does not speak TLS at all
    char[TLS_ERROR_TEXT] error_text
    # results of the handshake
    uint8_t ready        # the fields below are valid; atomic
    uint8_t verified     # the peer showed a certificate as required, and it is good
    uint32_t version     # 0x0303, 0x0304
    const char *cipher   # IANA's name of the suite
    char *server_name    # name in the client's hello, or NULL
    char *chain          # the peer's certificates: for each its length (4 bytes, native order) and DER
    size_t chain_len


cdef class TLSBase:
    # Make `ssl`; False when out of memory.
    cdef bint open(self, Tls *t) noexcept nogil
    # Go on with the handshake, and put bytes to send on `wire`. Return 1 when it is done, TLS_MORE or TLS_ERROR.
    cdef int handshake(self, Tls *t) noexcept nogil
    # Decrypt `input` into p[:n]. Return the number of bytes, TLS_MORE, TLS_CLOSED or TLS_ERROR.
    cdef long decrypt(self, Tls *t, char *p, size_t n) noexcept nogil
    # Return whether a part of a record has come and the rest has not.
    cdef bint inside_record(self, Tls *t) noexcept nogil
    # Move bytes from `out` into records on `wire`, until that holds `enough` bytes. False when it fails.
    cdef bint encrypt(self, Tls *t, OutQueue *out, size_t enough) noexcept nogil
    # Put the end of the stream on `wire`, and free `ssl`.
    cdef void close(self, Tls *t) noexcept nogil
    # Return whether one more handshake may begin now (connection_rate_limit). Any thread.
    cdef bint allow(self) noexcept nogil
