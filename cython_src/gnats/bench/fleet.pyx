"""Many connections to one server, driven by one thread without the GIL.

A Fleet connects (INFO, CONNECT, PING, PONG), sends a buffer and waits for its PONG on any of its connections,
and has the steps of a run: wait, read and count, write. The epoll set is edge-triggered, so `read` continues
until the socket is empty and `write` until it is full.

Use a Fleet in one thread at a time.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, EINPROGRESS, EINTR, EPROTO, errno
from libc.stdlib cimport calloc, free, malloc
from posix.unistd cimport close

import os
import time

from gnats.bench.frames cimport (
    CODE_BAD,
    CODE_CLOSED,
    CODE_ERR,
    CODE_FULL,
    CODE_NO_MEMORY,
    frames_between,
    frames_count,
)
from gnats.bench.sys cimport (
    AF_INET,
    EPOLL_CLOEXEC,
    EPOLL_CTL_ADD,
    EPOLLET,
    EPOLLIN,
    EPOLLOUT,
    IPPROTO_TCP,
    MSG_DONTWAIT,
    MSG_NOSIGNAL,
    SOCK_CLOEXEC,
    SOCK_NONBLOCK,
    SOCK_STREAM,
    TCP_NODELAY,
    connect,
    epoll_create1,
    epoll_ctl,
    epoll_wait,
    htons,
    inet_pton,
    recv,
    send,
    setsockopt,
    sockaddr,
    socket,
)
from gnats.includes.openssl cimport (
    SSL_ERROR_WANT_READ,
    SSL_ERROR_WANT_WRITE,
    SSL_ERROR_ZERO_RETURN,
    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER,
    SSL_MODE_ENABLE_PARTIAL_WRITE,
    ERR_clear_error,
    SSL_CTX_free,
    SSL_CTX_new,
    SSL_CTX_set_mode,
    SSL_free,
    SSL_get_error,
    SSL_new,
    SSL_read,
    SSL_set_connect_state,
    SSL_set_fd,
    SSL_write,
    TLS_client_method,
)

from gnats.bench.results import LoadError

cdef const char *PONG = b"PONG\r\n"

REASONS = {
    CODE_CLOSED: "closed by the server",
    CODE_BAD: "the server does not speak the NATS protocol",
    CODE_FULL: "a message larger than was published",
    CODE_NO_MEMORY: "out of memory",
}


cdef ssize_t tls_result(SSL *ssl, int n) noexcept nogil:
    """Convert OpenSSL's result to a socket's: bytes, 0 at the end, or -errno."""
    cdef int error
    if n > 0:
        return n
    error = SSL_get_error(ssl, n)
    if error == SSL_ERROR_WANT_READ or error == SSL_ERROR_WANT_WRITE:
        return -EAGAIN
    return 0 if error == SSL_ERROR_ZERO_RETURN else -EPROTO


cdef set_address(sockaddr_in *address, target):
    address.sin_family = AF_INET
    address.sin_port = htons(target.port)
    inet_pton(AF_INET, target.resolve().encode(), &address.sin_addr)


cdef class Fleet:
    """`count` connections to `target`, opened at most `parallel` at a time. Does not verify its certificate.

    With `elsewhere`, another target that takes the same greeting, those from number `first_elsewhere` on go there.

    Raises LoadError when a connection cannot be opened within `timeout` seconds. `connect_seconds` is the time
    until the last connection had its PONG.
    """

    def __cinit__(self):
        self.epoll = -1

    def __init__(
        self, target, int count, *, double timeout=30.0, int parallel=64, elsewhere=None, int first_elsewhere=0
    ):
        if count < 1 or parallel < 1:
            raise ValueError(f"a fleet of {count} connections, {parallel} at a time: both must be at least 1")
        self.target = target
        self.hello = target.hello()
        self.hello_data = self.hello
        self.hello_size = len(self.hello)
        self.count = count
        set_address(&self.address, target)
        self.first_elsewhere = count
        if elsewhere is not None:
            set_address(&self.elsewhere, elsewhere)
            self.first_elsewhere = first_elsewhere
        self.conns = <Conn *>calloc(count, sizeof(Conn))
        self.buf = <char *>malloc(READ_SIZE)
        if self.conns == NULL or self.buf == NULL:
            raise MemoryError(f"{count} connections")
        if target.tls:
            self.tls = SSL_CTX_new(TLS_client_method())
            if self.tls == NULL:
                raise MemoryError
            SSL_CTX_set_mode(self.tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER)
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, os.strerror(errno))
        try:
            self.connect_all(timeout, parallel)
        except BaseException:
            self.close()
            raise

    def __dealloc__(self):
        self.release()
        SSL_CTX_free(self.tls)
        free(self.conns)
        free(self.buf)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self) -> None:
        """Close every connection. Idempotent."""
        self.release()

    cdef void release(self) noexcept nogil:
        cdef int i
        for i in range(self.opened):
            SSL_free(self.conns[i].ssl)
            self.conns[i].ssl = NULL
            close(self.conns[i].fd)
            self.conns[i].fd = -1
        self.opened = 0
        if self.epoll >= 0:
            close(self.epoll)
            self.epoll = -1

    cdef connect_all(self, double timeout, int parallel):
        cdef double start = time.monotonic()
        cdef int ready = 0, rc
        while ready < self.count:
            with nogil:
                rc = self.connect_step(parallel, 100, &ready)
            self.check(rc, start + timeout, "connecting", ready, self.count)
        self.connect_seconds = time.monotonic() - start

    def exchange(self, int first, buffers, *, double timeout=30.0) -> float:
        """Write buffers[i], ending with its only PING, to connection first + i; wait for every PONG.

        Return the seconds that this took. Raises LoadError when it takes longer than `timeout`.
        """
        cdef int i, rc, complete = 0, count = len(buffers)
        cdef bytes data
        cdef double start = time.monotonic()
        for i in range(count):
            data = buffers[i]
            self.put(first + i, data, len(data))
            self.conns[first + i].asked += 1
            self.conns[first + i].waiting = 1
        with nogil:
            rc = 0
            for i in range(first, first + count):
                rc = self.write(i)
                if rc < 0:
                    break
        while True:
            self.check(rc, start + timeout, "waiting for PONG", complete, count)
            if complete == count:
                return time.monotonic() - start
            with nogil:
                rc = self.exchange_step(100, &complete)

    cdef check(self, int code, double deadline, str what, done, of):
        """Raise for a negative code, a signal, or after the deadline. Runs call this between two steps."""
        if code < 0:
            raise self.error(code)
        PyErr_CheckSignals()
        if done < of and time.monotonic() > deadline:
            raise LoadError(f"server {self.target}: timed out while {what}: {done:,} of {of:,}")

    cdef error(self, int code):
        cdef str reason = REASONS.get(code) or (
            f"the server says {(<bytes>self.conns[self.failed].frames.line).decode(errors='replace')}"
            if code == CODE_ERR
            else os.strerror(-code)
        )
        return LoadError(f"server {self.target}, connection {self.failed + 1} of {self.count}: {reason}")

    cdef int wait(self, int timeout_ms) noexcept nogil:
        """Fill `events`; return their number or a code."""
        cdef int n = epoll_wait(self.epoll, self.events, EVENTS_MAX, timeout_ms)
        if n < 0:
            return 0 if errno == EINTR else -errno
        return n

    cdef int read(self, int index) noexcept nogil:
        """Read and count all available bytes; return 0 or a code."""
        cdef Conn *c = &self.conns[index]
        cdef ssize_t n = READ_SIZE
        cdef int rc = 0
        while (n == READ_SIZE or (n > 0 and c.ssl != NULL)) and rc == 0:
            n = self.receive(c)
            if n > 0:
                rc = frames_count(&c.frames, self.buf, n)
            elif n == 0:
                rc = CODE_CLOSED
            elif n != -EAGAIN:
                rc = <int>n
        if rc:
            self.failed = index
        return rc

    cdef ssize_t receive(self, Conn *c) noexcept nogil:
        """Read once into `buf`; return the bytes, 0 at the end, or -errno."""
        cdef ssize_t n
        if c.ssl == NULL:
            n = recv(c.fd, self.buf, READ_SIZE, MSG_DONTWAIT)
            return n if n >= 0 else -errno
        ERR_clear_error()
        return tls_result(c.ssl, SSL_read(c.ssl, self.buf, READ_SIZE))

    cdef ssize_t give(self, Conn *c) noexcept nogil:
        """Write once from `out`; return the bytes or -errno."""
        cdef ssize_t n
        if c.ssl == NULL:
            n = send(c.fd, c.out + c.out_off, c.out_len - c.out_off, MSG_DONTWAIT | MSG_NOSIGNAL)
            return n if n >= 0 else -errno
        ERR_clear_error()
        n = tls_result(c.ssl, SSL_write(c.ssl, c.out + c.out_off, <int>(c.out_len - c.out_off)))
        return n if n else -EPROTO

    cdef int greet(self, int index) noexcept nogil:
        """Answer INFO: set up TLS (the first write or read starts it), and queue CONNECT; return 0 or a code."""
        cdef Conn *c = &self.conns[index]
        c.greeted = 1
        self.put(index, self.hello_data, self.hello_size)
        if self.tls == NULL:
            return 0
        c.ssl = SSL_new(self.tls)
        if c.ssl == NULL or SSL_set_fd(c.ssl, c.fd) != 1:
            self.failed = index
            return CODE_NO_MEMORY
        SSL_set_connect_state(c.ssl)
        return 0

    cdef void put(self, int index, const char *data, size_t size) noexcept nogil:
        """Queue bytes on a connection whose `out` is empty."""
        cdef Conn *c = &self.conns[index]
        c.out = data
        c.out_len = size
        c.out_off = 0

    cdef int write(self, int index) noexcept nogil:
        """Write until the socket is full, also PONGs; return 1 when nothing is left, 0 when it is full, or a code."""
        cdef Conn *c = &self.conns[index]
        cdef ssize_t n
        while True:
            if c.out_off < c.out_len:
                n = self.give(c)
                if n >= 0:
                    c.out_off += n
                elif n == -EAGAIN:
                    return 0
                else:
                    self.failed = index
                    return <int>n
            elif c.answered < c.frames.pings:
                c.answered += 1
                self.put(index, PONG, 6)
            else:
                return 1

    cdef int exchange_step(self, int timeout_ms, int *complete) noexcept nogil:
        """Serve the ready connections; add those whose PONG has arrived to `complete`; return 0 or a code."""
        cdef int i, index, rc
        cdef int n = self.wait(timeout_ms)
        cdef Conn *c
        for i in range(n):
            index = self.events[i].data.u32
            rc = self.read(index)
            if rc == 0:
                rc = self.write(index)
            if rc < 0:
                return rc
            c = &self.conns[index]
            if c.waiting and c.frames.pongs >= c.asked and frames_between(&c.frames):
                c.waiting = 0
                complete[0] += 1
        return min(n, 0)

    cdef int open_one(self) noexcept nogil:
        """Start the next connection; return 0 or a code."""
        cdef Conn *c = &self.conns[self.opened]
        cdef const sockaddr_in *address = &self.address
        cdef epoll_event event
        cdef int on = 1
        if self.opened >= self.first_elsewhere:
            address = &self.elsewhere
        self.failed = self.opened
        c.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)
        if c.fd < 0:
            return -errno
        event.events = EPOLLIN | EPOLLOUT | EPOLLET
        event.data.u32 = self.opened
        self.opened += 1
        setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on))
        if connect(c.fd, <const sockaddr *>address, sizeof(sockaddr_in)) < 0 and errno != EINPROGRESS:
            return -errno
        if epoll_ctl(self.epoll, EPOLL_CTL_ADD, c.fd, &event) < 0:
            return -errno
        c.asked = 1
        c.waiting = 1
        return 0

    cdef int connect_step(self, int parallel, int timeout_ms, int *ready) noexcept nogil:
        """Open connections, answer INFOs, and add completed connections to `ready`; return 0 or a code."""
        cdef int i, index, rc, n
        cdef Conn *c
        while self.opened < self.count and self.opened - ready[0] < parallel:
            rc = self.open_one()
            if rc < 0:
                return rc
        n = self.wait(timeout_ms)
        for i in range(n):
            index = self.events[i].data.u32
            c = &self.conns[index]
            rc = self.read(index)
            if rc == 0 and c.frames.infos and not c.greeted:
                rc = self.greet(index)
            if rc == 0:
                rc = self.write(index)
            if rc < 0:
                return rc
            if c.waiting and c.frames.pongs >= c.asked and frames_between(&c.frames):
                c.waiting = 0
                ready[0] += 1
        return min(n, 0)
