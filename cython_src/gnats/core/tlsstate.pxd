"""The TLS half of a connection, as its I/O sees it: no OpenSSL in here, so that a server without TLS never loads it.

`TLSBase` is what core.tls.TLSContext implements. A Tls belongs to one connection and is its owner's alone, but for
`ready` and the fields behind it, which any thread may read once `ready` is set.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gnats.core.outbound cimport OutQueue
from gnats.core.timers cimport Timer
from gnats.core.transport cimport Transport

# Where a connection is on its way to TLS. Nothing of the connection's own queue leaves it before TLS_OPEN.
cdef enum TLSPhase:
    TLS_WAIT = 1         # handshake first, with a fallback: no byte has come yet, and none has gone
    TLS_SNIFF = 2        # INFO has gone in clear, the first byte says whether the client speaks TLS
    TLS_HANDSHAKE = 3
    TLS_OPEN = 4
    TLS_FAILED = 5       # OpenSSL must not be called any more

cdef enum:
    TLS_MORE = 0         # what a step returns besides a count: it needs more input
    TLS_CLOSED = -1      # the peer has said that it ends here
    TLS_ERROR = -2       # error_code, error_text and verify_error say why

cdef enum:
    TLS_ERROR_TEXT = 160
    TLS_EOF = -1         # values of error_code besides OpenSSL's packed codes
    TLS_SYSCALL = -2
    TLS_NOT_PINNED = -3
    TLS_NO_MEMORY = -4


cdef struct Tls:
    Transport base
    Timer timer          # of what comes before the protocol
    void *ssl            # SSL, while phase is TLS_HANDSHAKE or later and the connection is open
    void *context        # borrowed TLSBase
    uint8_t phase
    uint8_t first        # the handshake comes before INFO
    uint8_t mixed        # a client need not speak TLS
    uint8_t eof          # the peer has said that it ends, and what came before has been parsed or kept
    double timeout       # seconds for the handshake
    double fallback      # seconds to wait for a hello before INFO goes in clear; 0: the handshake comes first
    OutQueue wire        # bytes for the socket: records, or INFO in clear
    const char *input    # records read from the socket and not taken by OpenSSL yet
    size_t input_len
    char *secure_info    # INFO for after a handshake that comes first
    size_t secure_len
    char *clear_info     # INFO for a client that does not begin with a handshake
    size_t clear_len
    # why a handshake has failed
    long error_code
    int verify_error     # X509_V_ERR, or for TLS_SYSCALL an errno
    uint8_t probe        # the peer does not speak TLS at all
    char[TLS_ERROR_TEXT] error_text
    # what a handshake has settled
    uint8_t ready        # atomic
    uint8_t verified     # the client's certificate was asked for and is good
    uint32_t version     # 0x0303, 0x0304
    const char *cipher   # IANA's name
    char *server_name    # of the hello, or NULL
    char *chain          # the client's certificates: for each its length (4 bytes, the machine's order) and its DER
    size_t chain_len


cdef class TLSBase:
    # Make `ssl`; False when out of memory.
    cdef bint open(self, Tls *t) noexcept nogil
    # Go on with the handshake: 1 when it is done, TLS_MORE or TLS_ERROR. What is to be sent is in `wire`.
    cdef int handshake(self, Tls *t) noexcept nogil
    # Bytes of what the peer said, into p[:n]; TLS_MORE, TLS_CLOSED or TLS_ERROR.
    cdef long decrypt(self, Tls *t, char *p, size_t n) noexcept nogil
    # Whether a record has begun to come and has not ended.
    cdef bint inside_record(self, Tls *t) noexcept nogil
    # Move what `out` holds into records on `wire`, until that holds `enough` bytes; False when it cannot be done.
    cdef bint encrypt(self, Tls *t, OutQueue *out, size_t enough) noexcept nogil
    # Free `ssl`, after putting the end of the stream on `wire`.
    cdef void close(self, Tls *t) noexcept nogil
    # Whether one more handshake may begin now (connection_rate_limit). Any thread.
    cdef bint allow(self) noexcept nogil
