"""Connections with a buffer for each direction, for loads that read messages. See lines.pyx."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

from gnats.bench.fleet cimport Conn, Fleet
from gnats.bench.frames cimport Reader
from gnats.includes.text cimport HEX_DIGITS

cdef enum:
    CODE_NO_RESPONDERS = -1100


cdef struct Line:
    # the two directions of one established connection
    Reader reader
    char *out
    size_t out_cap
    size_t out_start
    size_t out_end
    int64_t todo                 # requester: requests not yet sent
    int64_t flying               # requester: requests sent and not answered
    int64_t done                 # requester: answers
    int64_t last_ns


cdef class Lines:
    cdef Fleet fleet
    cdef Line *lines
    cdef int ready               # initialised lines

    cdef open(self, target, int count, size_t cap, double timeout, elsewhere=*, int first_elsewhere=*)
    cdef check(self, int code, double deadline, str what, done, of)


cdef int line_init(Line *line, size_t cap) noexcept nogil
cdef void line_free(Line *line) noexcept nogil
cdef char *line_room(Line *line, size_t n) noexcept nogil
cdef int line_flush(Line *line, int fd) noexcept nogil
cdef int line_pong(Line *line, Conn *c) noexcept nogil


cdef inline void put_hex(char *room, uint64_t value) noexcept nogil:
    """Write the low 32 bits as 8 hexadecimal digits."""
    cdef int i
    for i in range(8):
        room[7 - i] = HEX_DIGITS[value & 15]
        value >>= 4


cdef inline size_t decimal_digits(size_t value) noexcept nogil:
    cdef size_t digits = 1
    while value >= 10:
        value //= 10
        digits += 1
    return digits


cdef inline void put_decimal(char *room, size_t value, size_t digits) noexcept nogil:
    while digits:
        digits -= 1
        room[digits] = c'0' + value % 10
        value //= 10
