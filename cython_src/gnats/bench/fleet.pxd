"""Connections to one server in one epoll set. See fleet.pyx."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from gnats.bench.frames cimport Frames
from gnats.bench.sys cimport epoll_event, sockaddr_in
from gnats.includes.openssl cimport SSL, SSL_CTX

cdef enum:
    READ_SIZE = 256 * 1024
    EVENTS_MAX = 512


cdef struct Conn:
    int fd               # -1 before it is opened
    SSL *ssl             # NULL in clear: before INFO has come, and without TLS
    uint8_t greeted      # CONNECT has been put into `out`
    uint8_t waiting      # an exchange is not complete
    Frames frames
    const char *out      # bytes being written, borrowed
    size_t out_len
    size_t out_off
    int64_t answered     # PINGs answered
    int64_t asked        # PINGs sent


cdef class Fleet:
    cdef object target
    cdef bytes hello
    cdef const char *hello_data
    cdef size_t hello_size
    cdef sockaddr_in address
    cdef sockaddr_in elsewhere     # of the connections from first_elsewhere on
    cdef int first_elsewhere
    cdef SSL_CTX *tls
    cdef Conn *conns
    cdef readonly int count
    cdef readonly double connect_seconds
    cdef int opened
    cdef int epoll
    cdef char *buf
    cdef epoll_event events[EVENTS_MAX]
    cdef int failed      # index of the connection with the last negative code

    cdef int wait(self, int timeout_ms) noexcept nogil
    cdef int read(self, int index) noexcept nogil
    cdef ssize_t receive(self, Conn *c) noexcept nogil
    cdef ssize_t give(self, Conn *c) noexcept nogil
    cdef int greet(self, int index) noexcept nogil
    cdef void put(self, int index, const char *data, size_t size) noexcept nogil
    cdef int write(self, int index) noexcept nogil
    cdef int exchange_step(self, int timeout_ms, int *complete) noexcept nogil
    cdef check(self, int code, double deadline, str what, done, of)

    cdef connect_all(self, double timeout, int parallel)
    cdef error(self, int code)
    cdef void release(self) noexcept nogil
    cdef int open_one(self) noexcept nogil
    cdef int connect_step(self, int parallel, int timeout_ms, int *ready) noexcept nogil
