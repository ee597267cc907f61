"""Connections with a buffer for each direction; see lines.pxd."""
from libc.errno cimport EAGAIN, errno
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove

from gnats.bench.fleet cimport Conn, Fleet
from gnats.bench.frames cimport CODE_NO_MEMORY, reader_free, reader_init
from gnats.bench.sys cimport MSG_DONTWAIT, MSG_NOSIGNAL, send

from gnats.bench.results import LoadError

cdef const char *PONG = b"PONG\r\n"


cdef int line_init(Line *line, size_t cap) noexcept nogil:
    line.out = <char *>malloc(cap)
    line.out_cap = cap
    return reader_init(&line.reader, cap) if line.out != NULL else CODE_NO_MEMORY


cdef void line_free(Line *line) noexcept nogil:
    reader_free(&line.reader)
    free(line.out)


cdef char *line_room(Line *line, size_t n) noexcept nogil:
    """Return room for `n` bytes at the end of the bytes to write, for the caller to fill; NULL without room."""
    cdef char *room
    if line.out_start == line.out_end:
        line.out_start = line.out_end = 0
    elif line.out_end + n > line.out_cap:
        memmove(line.out, line.out + line.out_start, line.out_end - line.out_start)
        line.out_end -= line.out_start
        line.out_start = 0
    if line.out_end + n > line.out_cap:
        return NULL
    room = line.out + line.out_end
    line.out_end += n
    return room


cdef int line_flush(Line *line, int fd) noexcept nogil:
    """Write until the socket is full; return 0 or a code."""
    cdef ssize_t n
    while line.out_start < line.out_end:
        n = send(fd, line.out + line.out_start, line.out_end - line.out_start, MSG_DONTWAIT | MSG_NOSIGNAL)
        if n < 0:
            return 0 if errno == EAGAIN else -errno
        line.out_start += n
    return 0


cdef int line_pong(Line *line, Conn *c) noexcept nogil:
    """Answer the received PINGs; return 0 or a code."""
    cdef char *room
    while c.answered < c.frames.pings:
        room = line_room(line, 6)
        if room == NULL:
            return CODE_NO_MEMORY
        memcpy(room, PONG, 6)
        c.answered += 1
    return 0


cdef class Lines:
    """The base of the probes: their connections, with a buffer for each direction."""

    cdef open(self, target, int count, size_t cap, double timeout, elsewhere=None, int first_elsewhere=0):
        cdef int i
        if target.tls:
            raise ValueError(f"server {target}: requests and latencies are not measured over TLS")
        self.lines = <Line *>calloc(count, sizeof(Line))
        if self.lines == NULL:
            raise MemoryError(f"{count} connections")
        for i in range(count):
            self.ready += 1
            if line_init(&self.lines[i], cap):
                raise MemoryError(f"{count} connections with buffers of {cap} bytes")
        self.fleet = Fleet(
            target, count, timeout=timeout, elsewhere=elsewhere, first_elsewhere=first_elsewhere)

    def __dealloc__(self):
        cdef int i
        for i in range(self.ready):
            line_free(&self.lines[i])
        free(self.lines)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self.fleet.close()

    cdef check(self, int code, double deadline, str what, done, of):
        if code == CODE_NO_RESPONDERS:
            raise LoadError(f"server {self.fleet.target}: no responders; start one, or ask for some here")
        self.fleet.check(code, deadline, what, done, of)
