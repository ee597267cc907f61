"""Read a server's stream as cheaply as its use allows.

`frames_count` only counts. It keeps no bytes, so one buffer serves any number of connections, and it counts
exactly wherever the stream is cut. `reader_next` returns whole messages (reply subject and payload) from the
connection's own buffer; requesters, responders and latency probes use it.

A message's line that equals the line before it is not parsed again. Of another line, only the end is parsed:
memchr finds the line's end, and the size is read backwards.
"""
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy, memmove

from gnats.bench.sys cimport MSG_DONTWAIT, recv
from gnats.includes.text cimport goes_on_from_text, starts_with_text


cdef inline int64_t trailing_number(const char *first, const char *last) noexcept nogil:
    """Return the number at the end of [first, last), -1 without digits."""
    cdef int64_t value = 0, scale = 1
    cdef const char *p = last
    while p > first and c'0' <= (p - 1)[0] <= c'9':
        p -= 1
        value += (p[0] - c'0') * scale
        scale *= 10
    return value if p < last else -1


cdef inline bint is_message(const char *line, size_t n) noexcept nogil:
    """Whether a payload follows a line of `n` bytes."""
    return goes_on_from_text(line, n, b"MSG ") or starts_with_text(line, n, b"HMSG ")


cdef int end_of_line(Frames *f, int n) noexcept nogil:
    """Process a complete line, whose first `n` bytes without the line's end are in f.line."""
    cdef char *line = f.line
    line[n] = 0
    if is_message(line, n):
        if f.number < 0:
            return CODE_BAD
        f.size = f.number
        f.skip = f.number + 2
    elif starts_with_text(line, n, b"PING"):
        f.pings += 1
    elif starts_with_text(line, n, b"PONG"):
        f.pongs += 1
    elif starts_with_text(line, n, b"INFO"):
        f.infos += 1
    elif starts_with_text(line, n, b"-ERR"):
        return CODE_ERR
    elif not starts_with_text(line, n, b"+OK"):
        return CODE_BAD
    return 0


cdef inline int add_to_line(Frames *f, char c) noexcept nogil:
    """Add one byte to an incomplete line."""
    cdef int n
    if f.line_len == 0:
        f.number = -1
    if c == c'\n':
        n = f.line_len if f.line_len < LINE_MAX else LINE_MAX - 1
        if n and f.line[n - 1] == c'\r':
            n -= 1
        f.line_len = 0
        return end_of_line(f, n)
    if f.line_len < LINE_MAX:
        f.line[f.line_len] = c
    f.line_len += 1
    if c'0' <= c <= c'9':
        f.number = c - c'0' if f.number < 0 else f.number * 10 + (c - c'0')
    elif c != c'\r':
        f.number = -1
    return 0


cdef int frames_count(Frames *f, const char *buf, size_t n) noexcept nogil:
    """Count the frames that `n` more bytes of the stream complete; return 0, CODE_BAD or CODE_ERR."""
    cdef const char *p = buf
    cdef const char *end = buf + n
    cdef const char *lf
    cdef const char *last = NULL     # the previous message's line, `head` bytes, in the same buffer
    cdef ptrdiff_t head = 0
    cdef int64_t size = 0
    cdef int rc
    while p < end:
        if last != NULL and end - p >= head + size + 2 and memcmp(p, last, head) == 0:
            last = p
            p += head + size + 2
            f.messages += 1
            f.bytes += size
            continue
        if f.skip:
            if f.skip > end - p:
                f.skip -= end - p
                return 0
            p += f.skip
            f.skip = 0
            f.messages += 1
            f.bytes += f.size
            continue
        lf = NULL
        if f.line_len == 0 and (p[0] == c'M' or p[0] == c'H'):
            lf = <const char *>memchr(p, c'\n', end - p)
        if lf == NULL:
            rc = add_to_line(f, p[0])
            if rc:
                return rc
            p += 1
            continue
        if not is_message(p, lf - p):
            return CODE_BAD
        size = trailing_number(p, lf - 1 if (lf - 1)[0] == c'\r' else lf)
        if size < 0:
            return CODE_BAD
        last = p
        head = lf + 1 - p
        p = lf + 1
        if end - p >= size + 2:
            p += size + 2
            f.messages += 1
            f.bytes += size
        else:
            f.size = size
            f.skip = size + 2
    return 0


cdef bint frames_between(const Frames *f) noexcept nogil:
    """Whether the last byte read has completed a frame."""
    return f.skip == 0 and f.line_len == 0


cdef int reader_init(Reader *r, size_t cap) noexcept nogil:
    r.buf = <char *>malloc(cap)
    r.cap = cap
    r.start = r.end = 0
    return 0 if r.buf != NULL else CODE_NO_MEMORY


cdef void reader_free(Reader *r) noexcept nogil:
    free(r.buf)
    r.buf = NULL


cdef int reader_fill(Reader *r, int fd) noexcept nogil:
    """Read once; return 1 when the buffer is full, so that more may be available, 0 when not, or a code.

    Invalidates all messages returned before.
    """
    cdef ssize_t n
    if r.start:
        memmove(r.buf, r.buf + r.start, r.end - r.start)
        r.end -= r.start
        r.start = 0
    if r.end == r.cap:
        return CODE_FULL
    n = recv(fd, r.buf + r.end, r.cap - r.end, MSG_DONTWAIT)
    if n > 0:
        r.end += n
        return r.end == r.cap
    if n == 0:
        return CODE_CLOSED
    return 0 if errno == EAGAIN or errno == EINTR else -errno


cdef int parse_message_line(Message *m, const char *line, const char *end) noexcept nogil:
    """Parse `MSG subject sid [reply] size` or `HMSG subject sid [reply] header-size size`, up to `end`."""
    cdef const char *tokens[6]
    cdef size_t lengths[6]
    cdef int count = 0
    cdef int sizes = 2 if line[0] == c'H' else 1
    cdef const char *p = line
    cdef const char *stop
    cdef int64_t size, header = 0
    while p < end:
        stop = <const char *>memchr(p, c' ', end - p)
        if stop == NULL:
            stop = end
        if stop > p:
            if count == 6:
                return CODE_BAD
            tokens[count] = p
            lengths[count] = stop - p
            count += 1
        p = stop + 1
    if count < 3 + sizes:
        return CODE_BAD
    size = trailing_number(tokens[count - 1], end)
    if sizes == 2:
        header = trailing_number(tokens[count - 2], tokens[count - 2] + lengths[count - 2])
    if header < 0 or size < header:
        return CODE_BAD
    m.size = size
    m.header_len = header
    m.reply = tokens[3] if count == 4 + sizes else NULL
    m.reply_len = lengths[3] if count == 4 + sizes else 0
    return 0


cdef int reader_next(Reader *r, Frames *f, Message *m) noexcept nogil:
    """Read the next message into `m`; return 1, 0 when it needs more bytes, or a code. `f` counts other frames."""
    cdef const char *p
    cdef const char *lf
    cdef const char *last
    cdef int n, rc
    while r.start < r.end:
        p = r.buf + r.start
        lf = <const char *>memchr(p, c'\n', r.end - r.start)
        if lf == NULL:
            return 0
        last = lf - 1 if lf > p and (lf - 1)[0] == c'\r' else lf
        if is_message(p, last - p):
            rc = parse_message_line(m, p, last)
            if rc:
                return rc
            m.payload = lf + 1
            if <size_t>(r.buf + r.end - m.payload) < m.size + 2:
                return 0
            r.start = (m.payload - r.buf) + m.size + 2
            f.messages += 1
            f.bytes += m.size
            return 1
        n = min(last - p, LINE_MAX - 1)
        memcpy(f.line, p, n)
        rc = end_of_line(f, n)
        if rc:
            return rc
        r.start = lf + 1 - r.buf
    return 0


cdef class FrameCounter:
    """Counts the frames of a server's stream, which arrives in pieces of any size.

    Attributes: messages and bytes (of complete messages), infos, pings, pongs.
    """

    cdef Frames f

    def feed(self, bytes data not None) -> None:
        """Count the frames that `data` completes. Raises ValueError for bytes that are not NATS, or an -ERR."""
        cdef int rc = frames_count(&self.f, data, len(data))
        if rc == CODE_ERR:
            raise ValueError(f"the stream holds {self.f.line.decode(errors='replace')}")
        if rc:
            raise ValueError("the stream is not the NATS protocol")

    @property
    def messages(self) -> int:
        return self.f.messages

    @property
    def bytes(self) -> int:
        return self.f.bytes

    @property
    def infos(self) -> int:
        return self.f.infos

    @property
    def pings(self) -> int:
        return self.f.pings

    @property
    def pongs(self) -> int:
        return self.f.pongs

    @property
    def between(self) -> bool:
        """Whether the bytes counted end with a complete frame."""
        return frames_between(&self.f)
