"""Measure latencies: of requests and replies, and of single messages.

The first 8 bytes of a payload are the time of sending, which a responder sends back.
"""
from libc.errno cimport EINTR, errno
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.string cimport memcpy, strlen
from posix.time cimport timespec

import os
import time

from gnats.bench.fleet cimport Conn
from gnats.bench.frames cimport CODE_BAD, CODE_NO_MEMORY, Message, reader_fill, reader_next
from gnats.bench.histogram cimport Histogram
from gnats.bench.lines cimport (
    CODE_NO_RESPONDERS,
    Line,
    Lines,
    decimal_digits,
    line_flush,
    line_pong,
    line_room,
    put_decimal,
    put_hex,
)
from gnats.bench.sys cimport POLLIN, now_ns, pollfd, ppoll, thread_cpu_ns
from gnats.includes.text cimport put, put_text
from gnats.includes.units cimport SECOND

from gnats.bench.results import LatencyResult, RequestResult, Sample

cdef enum:
    STAMP = 8                    # bytes of payload that hold the time of sending


cdef class Requests(Lines):
    """`requesters` connections that keep `window` requests in flight each, and `responders` that answer them.

    Responders form a queue group on `subject`, at `responders_at` if given; without any, other clients must answer.
    Each request has its own reply subject below the requester's inbox, as with real clients; with `fresh` also its
    own subscription, as with old ones. `size` is the payload of request and reply in bytes, at least 8. Raises
    ValueError or LoadError.
    """

    cdef bytes template          # SUB and UNSUB if fresh; PUB subject inbox size, payload
    cdef char *request
    cdef size_t request_len
    cdef size_t inbox_at         # offset of the requester's number, a dot and the request's number
    cdef size_t fresh_at[3]      # if fresh, offsets in SUB of the same, and in SUB and UNSUB of the request's number
    cdef bint fresh
    cdef size_t payload_at
    cdef int requesters
    cdef int responders
    cdef int window
    cdef int size
    cdef uint64_t number
    cdef int64_t answered
    cdef Histogram latency

    def __init__(
        self,
        target,
        *,
        int requesters=1,
        int responders=1,
        int window=1,
        int size=128,
        str subject="bench.request",
        responders_at=None,
        bint fresh=False,
        double timeout=30.0,
    ):
        if requesters < 1 or responders < 0 or window < 1 or size < STAMP:
            raise ValueError(f"requests of {size} bytes, {window} in flight: at least {STAMP} and 1")
        self.requesters = requesters
        self.responders = responders
        self.window = window
        self.size = size
        cdef bytes inbox = b"_INBOX." + os.urandom(6).hex().encode() + b"."
        cdef bytes number = b"%08x" % 0
        cdef bytes head = b""
        self.fresh = fresh
        if fresh:
            head = b"SUB " + inbox
            self.fresh_at[0] = len(head)
            head += b"%b.%b " % (number, number)
            self.fresh_at[1] = len(head)
            head += number + b"\r\nUNSUB "
            self.fresh_at[2] = len(head)
            head += number + b" 1\r\n"
        head += b"PUB %b " % subject.encode() + inbox
        self.inbox_at = len(head)
        head += b"%08x.%08x %d\r\n" % (0, 0, size)
        self.payload_at = len(head)
        self.template = head + b"x" * size + b"\r\n"
        self.request = self.template
        self.request_len = len(self.template)
        self.open(
            target,
            requesters + responders,
            2 * window * requesters * self.request_len + 65536,
            timeout,
            responders_at,
            requesters,
        )
        self.fleet.exchange(
            0,
            [b"PING\r\n" if fresh else b"SUB %b%08x.* 1\r\nPING\r\n" % (inbox, i) for i in range(requesters)]
            + [b"SUB %b bench 1\r\nPING\r\n" % subject.encode()] * responders,
            timeout=timeout,
        )

    def run(self, int64_t requests, *, double timeout=60.0, progress=None):
        """Send `requests` in all and wait for every reply; return a RequestResult.

        progress: called about ten times a second with the requests answered until then.
        """
        cdef double deadline = time.monotonic() + timeout
        cdef int64_t cpu = thread_cpu_ns()
        cdef int64_t start = now_ns()
        cdef int i, rc
        self.answered = 0
        self.latency = Histogram()
        for i in range(self.requesters):
            self.lines[i].todo = requests // self.requesters + (i < requests % self.requesters)
            self.lines[i].done = self.lines[i].flying = 0
            self.lines[i].last_ns = start
            self.check(self.serve(i), deadline, "sending requests", 0, requests)
        while self.answered < requests:
            with nogil:
                rc = self.pump(requests, now_ns() + 100_000_000)
            self.check(rc, deadline, "waiting for replies", self.answered, requests)
            if progress is not None:
                progress(self.answered)
        return RequestResult(
            requests=requests,
            bytes=requests * self.size,
            seconds=(now_ns() - start) / <double> SECOND,
            latency=self.latency,
            requesters=[
                Sample(
                    self.lines[i].done,
                    self.lines[i].done * self.size,
                    max(1, self.lines[i].last_ns - start) / <double> SECOND,
                )
                for i in range(self.requesters)
            ],
            generator_cpu_seconds=(thread_cpu_ns() - cpu) / <double> SECOND,
        )

    cdef int pump(self, int64_t requests, int64_t until_ns) noexcept nogil:
        """Serve connections until all replies have arrived or the time is `until_ns`; return 0 or a code."""
        cdef int i, n, rc
        while self.answered < requests and now_ns() < until_ns:
            n = self.fleet.wait(50)
            if n < 0:
                return n
            for i in range(n):
                rc = self.serve(self.fleet.events[i].data.u32)
                if rc:
                    return rc
        return 0

    cdef int serve(self, int index) noexcept nogil:
        """Read, answer and send requests on one connection; return 0 or a code."""
        cdef Line *line = &self.lines[index]
        cdef Conn *c = &self.fleet.conns[index]
        cdef Message m
        cdef int more = 1
        cdef int rc = 0
        while more > 0:
            more = reader_fill(&line.reader, c.fd)
            rc = min(more, 0)
            while rc == 0:
                rc = reader_next(&line.reader, &c.frames, &m)
                if rc <= 0:
                    break
                rc = self.take_reply(line, &m) if index < self.requesters else self.reply(line, &m)
            if rc == 0:
                rc = line_pong(line, c)
            while rc == 0 and line.todo and line.flying < self.window:
                rc = self.ask(index, line)
            if rc == 0:
                rc = line_flush(line, c.fd)
            if rc < 0:
                self.fleet.failed = index
                return rc
        return 0

    cdef int ask(self, int index, Line *line) noexcept nogil:
        cdef char *room = line_room(line, self.request_len)
        cdef int64_t now
        if room == NULL:
            return CODE_NO_MEMORY
        memcpy(room, self.request, self.request_len)
        put_hex(room + self.inbox_at, index)
        put_hex(room + self.inbox_at + 9, self.number)
        if self.fresh:
            put_hex(room + self.fresh_at[0], index)
            put_hex(room + self.fresh_at[0] + 9, self.number)
            put_hex(room + self.fresh_at[1], self.number)
            put_hex(room + self.fresh_at[2], self.number)
        now = now_ns()
        memcpy(room + self.payload_at, &now, STAMP)
        self.number += 1
        line.todo -= 1
        line.flying += 1
        return 0

    cdef int reply(self, Line *line, const Message *m) noexcept nogil:
        cdef size_t digits = decimal_digits(m.size)
        cdef size_t n = strlen(b"PUB ") + m.reply_len + 1 + digits + strlen(b"\r\n") + m.size + strlen(b"\r\n")
        cdef char *room
        if m.reply == NULL:
            return 0
        room = line_room(line, n)
        if room == NULL:
            return CODE_NO_MEMORY
        room = put(put_text(room, b"PUB "), m.reply, m.reply_len)
        room[0] = c' '
        put_decimal(room + 1, m.size, digits)
        room += 1 + digits
        put_text(put(put_text(room, b"\r\n"), m.payload, m.size), b"\r\n")
        return 0

    cdef int take_reply(self, Line *line, const Message *m) noexcept nogil:
        cdef int64_t sent
        if m.header_len and m.header_len == m.size:
            return CODE_NO_RESPONDERS
        if m.size < m.header_len + STAMP:
            return CODE_BAD
        memcpy(&sent, m.payload + m.header_len, STAMP)
        line.last_ns = now_ns()
        self.latency.add_ns(line.last_ns - sent)
        line.flying -= 1
        line.done += 1
        self.answered += 1
        return 0


cdef class Latency(Lines):
    """Measures the time of each message from one publisher to one subscriber, who is at `subscriber_at` if given.

    Raises ValueError for a `size` below 8 bytes, or LoadError.
    """

    cdef bytes template
    cdef char *message
    cdef size_t message_len
    cdef size_t payload_at
    cdef uint64_t random
    # the present run
    cdef int64_t sent
    cdef int64_t received
    cdef int64_t due_ns
    cdef int64_t interval_ns
    cdef Histogram latency

    def __init__(
        self, target, *, int size=16, str subject="bench.latency", double timeout=30.0, subscriber_at=None
    ):
        if size < STAMP:
            raise ValueError(f"latency messages of {size} bytes: at least {STAMP} bytes")
        cdef bytes head = b"PUB %b %d\r\n" % (subject.encode(), size)
        self.payload_at = len(head)
        self.template = head + b"x" * size + b"\r\n"
        self.message = self.template
        self.message_len = len(self.template)
        self.random = int.from_bytes(os.urandom(8), "little") | 1
        self.open(target, 2, 16 * self.message_len + 65536, timeout, subscriber_at, 1)
        self.fleet.exchange(1, [b"SUB %b 1\r\nPING\r\n" % subject.encode()], timeout=timeout)

    def run(self, int64_t messages, *, double interval=0.0005, double timeout=60.0):
        """Send `messages` and wait until all have arrived; return a LatencyResult.

        interval: average seconds between two messages. They are sent at random moments, whether or not the previous
        ones have arrived, so that a stall of the server shows. 0: send each when the previous one has arrived.
        """
        cdef double deadline = time.monotonic() + timeout
        cdef int64_t start = now_ns()
        cdef int rc
        self.sent = self.received = 0
        self.interval_ns = <int64_t>(interval * SECOND)
        self.latency = Histogram()
        self.due_ns = start
        while self.received < messages:
            with nogil:
                rc = self.pump(messages, now_ns() + 100_000_000)
            self.check(rc, deadline, "waiting for messages", self.received, messages)
        return LatencyResult(messages=messages, seconds=(now_ns() - start) / <double> SECOND, latency=self.latency)

    cdef int pump(self, int64_t messages, int64_t until_ns) noexcept nogil:
        """Send and receive until all have arrived or the time is `until_ns`; return 0 or a code."""
        cdef int64_t now, rest
        cdef pollfd fds[2]
        cdef timespec wait
        cdef int i, n, rc
        for i in range(2):
            fds[i].fd = self.fleet.conns[i].fd
            fds[i].events = POLLIN
        while self.received < messages:
            now = now_ns()
            if now >= until_ns:
                return 0
            if self.sent < messages and now >= self.due_ns:
                rc = self.publish()
                if rc < 0:
                    return rc
            rest = max(0, min(until_ns, self.due_ns if self.sent < messages else until_ns) - now)
            wait.tv_sec = rest // SECOND
            wait.tv_nsec = rest % SECOND
            n = ppoll(fds, 2, &wait, NULL)
            if n < 0 and errno != EINTR:
                return -errno
            for i in range(2):
                if n > 0 and fds[i].revents:
                    rc = self.receive(i)
                    if rc < 0:
                        self.fleet.failed = i
                        return rc
        return 0

    cdef int publish(self) noexcept nogil:
        """Send one message and choose the time of the next; return 0 or a code."""
        cdef Line *line = &self.lines[0]
        cdef char *room = line_room(line, self.message_len)
        cdef int64_t now
        if room == NULL:
            return CODE_NO_MEMORY
        memcpy(room, self.message, self.message_len)
        now = now_ns()
        memcpy(room + self.payload_at, &now, STAMP)
        self.sent += 1
        self.random ^= self.random << 13
        self.random ^= self.random >> 7
        self.random ^= self.random << 17
        if self.interval_ns:
            self.due_ns += self.interval_ns // 2 + <int64_t>(self.random % <uint64_t>(self.interval_ns + 1))
        else:
            self.due_ns = INT64_MAX
        return line_flush(line, self.fleet.conns[0].fd)

    cdef int receive(self, int index) noexcept nogil:
        """Read all available bytes; return 0 or a code."""
        cdef Line *line = &self.lines[index]
        cdef Conn *c = &self.fleet.conns[index]
        cdef Message m
        cdef int64_t sent, now
        cdef int more = 1
        cdef int rc
        while more > 0:
            more = reader_fill(&line.reader, c.fd)
            if more < 0:
                return more
            now = now_ns()
            while True:
                rc = reader_next(&line.reader, &c.frames, &m)
                if rc <= 0:
                    break
                if m.size < STAMP:
                    return CODE_BAD
                memcpy(&sent, m.payload, STAMP)
                self.latency.add_ns(now - sent)
                self.received += 1
                if self.interval_ns == 0:
                    self.due_ns = now
            if rc == 0:
                rc = line_pong(line, c)
            if rc == 0:
                rc = line_flush(line, c.fd)
            if rc < 0:
                return rc
        return 0
