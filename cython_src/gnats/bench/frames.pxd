"""Read a server's stream for a load generator: count frames only, or read them one by one. See frames.pyx."""
from libc.stdint cimport int64_t

cdef enum:
    LINE_MAX = 160       # bytes kept of a line, enough for any -ERR; the rest of a longer line is dropped

cdef enum:
    # Results of functions that read; other negative ones are -errno.
    CODE_CLOSED = -1001     # the server closed the connection
    CODE_BAD = -1002        # the bytes are not the NATS protocol
    CODE_ERR = -1003        # the server sent -ERR; its text is in `line`
    CODE_FULL = -1004       # a frame is larger than the reader's buffer
    CODE_NO_MEMORY = -1005


cdef struct Frames:
    int64_t messages     # complete MSG and HMSG frames
    int64_t bytes        # of their payloads and headers
    int64_t infos
    int64_t pings
    int64_t pongs
    int64_t skip         # bytes of the current payload and its CRLF still to come
    int64_t size         # size of the current payload
    int64_t number       # the number at the end of the current, incomplete line; -1 for none
    int line_len         # bytes of the current, incomplete line; 0 between lines
    char line[LINE_MAX]


cdef struct Message:
    const char *reply    # NULL when there is none
    size_t reply_len
    const char *payload  # headers included
    size_t size
    size_t header_len


cdef struct Reader:
    char *buf
    size_t cap
    size_t start         # first byte not yet consumed
    size_t end           # first byte not yet filled


cdef int frames_count(Frames *f, const char *buf, size_t n) noexcept nogil
cdef bint frames_between(const Frames *f) noexcept nogil

cdef int reader_init(Reader *r, size_t cap) noexcept nogil
cdef void reader_free(Reader *r) noexcept nogil
cdef int reader_fill(Reader *r, int fd) noexcept nogil
cdef int reader_next(Reader *r, Frames *f, Message *m) noexcept nogil
