"""JetStream loads: publishing with acks, and reading a stream through push and pull consumers.

One connection, which does as little per message as a client can: publishes leave `window` at a time ahead of their
acks, deliveries are counted, explicit acks are sent in the order of the messages.
"""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, strlen

import json
import time

from gnats.bench.fleet cimport Conn
from gnats.bench.frames cimport CODE_NO_MEMORY, Message, reader_fill, reader_next
from gnats.bench.histogram cimport Histogram
from gnats.bench.lines cimport CODE_NO_RESPONDERS, Line, Lines, line_flush, line_pong, line_room, put_hex
from gnats.bench.sys cimport now_ns, thread_cpu_ns
from gnats.includes.text cimport goes_on_from_text, put, put_text, starts_with_text
from gnats.includes.units cimport SECOND

from gnats.bench.results import LoadError, StreamResult

cdef extern from "<string.h>" nogil:
    void *memmem(const void *haystack, size_t n, const void *needle, size_t m)

cdef extern from * nogil:
    """
    #define GNATS_BENCH_INBOX "_INBOX.gnatsbench."
    """
    const char *INBOX "GNATS_BENCH_INBOX"

# A push consumer needs interest in exactly this subject: a wildcard that matches it does not count.
cdef const char *DELIVER = b"_DELIVER.gnatsbench"

cdef enum:
    CODE_REFUSED = -1200     # the answer is an error; `answer` holds it
    BUFFER = 4 * 1024 * 1024

cdef enum Role:
    ASKING                   # an API request: the next message is the answer
    PUBLISHING
    GETTING                  # direct gets: a request each, as publishes, but the answers are messages
    PUSHED
    PULLING


cdef class Streams(Lines):
    """One connection to a server with JetStream. Raises LoadError when it cannot be opened."""

    cdef Role role
    cdef bytes answer
    # publishing
    cdef bytes template
    cdef const char *publish_data
    cdef size_t publish_len
    cdef size_t inbox_at
    cdef size_t number_at            # offset of the number in the subject, when there are several
    cdef int64_t subjects
    cdef int64_t *sent               # when the message was sent, a ring of `window`
    cdef int64_t window
    cdef int64_t asked               # messages published in this run
    cdef int consumers               # consumers made
    cdef uint64_t replies            # reply subjects used: all are different, as with other clients
    cdef int64_t total
    # consuming
    cdef int64_t got
    cdef int64_t payloads            # bytes
    cdef bint acking
    cdef bytes request
    cdef const char *request_data
    cdef size_t request_len
    cdef int64_t batch
    cdef int64_t requested           # messages requested
    cdef Histogram latency

    def __init__(self, target, *, double timeout=30.0):
        self.open(target, 1, BUFFER, timeout)
        self.fleet.exchange(0, [b"SUB %b* 1\r\nSUB %b 2\r\nPING\r\n" % (INBOX, DELIVER)], timeout=timeout)

    def __dealloc__(self):
        free(self.sent)

    def api(self, str subject, body=None, *, double timeout=30.0) -> dict:
        """Send a request below `$JS.API.` with `body` as JSON; return the answer. Raises LoadError for an error."""
        cdef bytes payload = b"" if body is None else json.dumps(body).encode()
        cdef double deadline = time.monotonic() + timeout
        self.put_line(b"PUB $JS.API.%b %bapi %d\r\n%b\r\n" % (subject.encode(), INBOX, len(payload), payload))
        self.role = ASKING
        self.answer = None
        self.check(self.serve(), deadline, subject, 0, 1)
        while self.answer is None:
            self.check(self.pump(now_ns() + 100_000_000), deadline, f"asking {subject}", 0, 1)
        answer = json.loads(self.answer)
        if "error" in answer:
            raise LoadError(f"server {self.fleet.target}: {subject}: {answer['error'].get('description')}")
        return answer

    def publish(
        self, str subject, int64_t messages, *, int size, int64_t window, int64_t subjects=1, double timeout=120.0
    ):
        """Publish `messages`, each with a reply subject, and wait for every ack; return a StreamResult.

        At most `window` messages wait for their acks. With `subjects` over 1, the subject gets another token, a number
        of eight hexadecimal digits, and the numbers take turns. `latency` is from the write to the ack.
        Raises LoadError when a message is refused, or all take longer than `timeout`.
        """
        self.repeat(subject, size, window, subjects)
        return self.run(PUBLISHING, messages, timeout, "publishing")

    def get(self, str stream, str subject, int64_t messages, *, int64_t window, int64_t subjects=1,
            double timeout=120.0):
        """Get the last message of a subject, or of `subjects` in turn, `messages` times; return a StreamResult.

        Otherwise as publish(). The stream must allow direct gets.
        """
        self.repeat(f"$JS.API.DIRECT.GET.{stream}.{subject}", 0, window, subjects)
        return self.run(GETTING, messages, timeout, "asking for messages")

    cdef repeat(self, str subject, int size, int64_t window, int64_t subjects):
        """Make the text that publish_more() sends."""
        cdef bytes head = b"PUB %b%b " % (subject.encode(), b".%08x" % 0 if subjects > 1 else b"")
        self.subjects = subjects
        self.number_at = len(head) - 9
        self.inbox_at = len(head) + strlen(INBOX)
        self.template = head + INBOX + b"%08x %d\r\n" % (0, size) + b"x" * size + b"\r\n"
        self.publish_data = self.template
        self.publish_len = len(self.template)
        self.window = min(window, <int64_t> (BUFFER // 2 // self.publish_len))
        free(self.sent)
        self.sent = <int64_t *> calloc(self.window, sizeof(int64_t))
        if self.sent == NULL:
            raise MemoryError
        self.asked = 0

    def push(self, str stream, int64_t messages, config: dict, *, double timeout=120.0):
        """Read `messages` through a new push consumer; return a StreamResult. Answers flow control."""
        config = {"deliver_subject": DELIVER.decode(), "deliver_policy": "all", "ack_policy": "none"} | config
        name = self.consumer_name()
        self.acking = config["ack_policy"] == "explicit"
        self.role = PUSHED
        self.got = self.payloads = 0
        self.total = messages
        self.latency = Histogram()
        start, cpu = now_ns(), thread_cpu_ns()
        body = json.dumps({"stream_name": stream, "config": config | {"name": name}}).encode()
        self.put_line(
            b"PUB $JS.API.CONSUMER.CREATE.%b.%b %bapi %d\r\n%b\r\n"
            % (stream.encode(), name.encode(), INBOX, len(body), body))
        self.finish(time.monotonic() + timeout, "waiting for messages")
        result = self.result(start, cpu)
        self.api(f"CONSUMER.DELETE.{stream}.{name}")
        return result

    def pull(self, str stream, int64_t messages, config: dict, *, int64_t batch, double timeout=120.0):
        """Read `messages` through a new pull consumer, with two requests of `batch` waiting; return a StreamResult."""
        config = {"deliver_policy": "all", "ack_policy": "explicit", "max_ack_pending": -1} | config
        name = self.consumer_name()
        self.api(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config | {"name": name}})
        self.acking = config["ack_policy"] == "explicit"
        body = json.dumps({"batch": batch, "expires": 60_000_000_000}).encode()
        self.request = b"PUB $JS.API.CONSUMER.MSG.NEXT.%b.%b %bpull %d\r\n%b\r\n" % (
            stream.encode(), name.encode(), INBOX, len(body), body)
        self.request_data = self.request
        self.request_len = len(self.request)
        self.batch = batch
        self.requested = 0
        result = self.run(PULLING, messages, timeout, "waiting for messages")
        self.api(f"CONSUMER.DELETE.{stream}.{name}")
        return result

    cdef str consumer_name(self):
        """Return a new name, so that acks of different consumers have different subjects."""
        self.consumers += 1
        return f"c{self.consumers}"

    cdef put_line(self, bytes line):
        cdef char *room = line_room(&self.lines[0], len(line))
        if room == NULL:
            raise MemoryError
        memcpy(room, <const char *> line, len(line))

    cdef run(self, Role role, int64_t messages, double timeout, str what):
        cdef int64_t start = now_ns(), cpu = thread_cpu_ns()
        self.role = role
        self.total = messages
        self.got = self.payloads = 0
        self.latency = Histogram()
        self.finish(time.monotonic() + timeout, what)
        return self.result(start, cpu)

    cdef finish(self, double deadline, str what):
        cdef int rc = self.serve()
        while True:
            if rc == CODE_REFUSED:
                raise LoadError(f"server {self.fleet.target}: {self.answer.decode(errors='replace')}")
            self.check(rc, deadline, what, self.got, self.total)
            if self.got >= self.total:
                break
            with nogil:
                rc = self.pump(now_ns() + 100_000_000)
        if self.got > self.total:
            raise LoadError(f"server {self.fleet.target}: {self.got:,} messages instead of {self.total:,}")

    cdef result(self, int64_t start, int64_t cpu):
        return StreamResult(
            messages=self.got,
            bytes=self.payloads,
            seconds=(now_ns() - start) / <double> SECOND,
            latency=self.latency,
            generator_cpu_seconds=(thread_cpu_ns() - cpu) / <double> SECOND,
        )

    cdef int pump(self, int64_t until_ns) noexcept nogil:
        """Serve the connection until the run is over or the time is `until_ns`; return 0 or a code."""
        cdef int n, rc
        while now_ns() < until_ns:
            n = self.fleet.wait(50)
            if n < 0:
                return n
            if n > 0:
                rc = self.serve()
                if rc:
                    return rc
            if self.role == ASKING or self.got >= self.total:
                break
        return 0

    cdef int serve(self) noexcept nogil:
        """Read and write as much as possible; return 0 or a code."""
        cdef Line *line = &self.lines[0]
        cdef Conn *c = &self.fleet.conns[0]
        cdef Message m
        cdef int more = 1
        cdef int rc
        while more > 0:
            more = reader_fill(&line.reader, c.fd)
            if more < 0:
                return more
            rc = 1
            while rc > 0:
                rc = reader_next(&line.reader, &c.frames, &m)
                if rc > 0:
                    rc = self.take(line, &m)
            if rc == 0:
                rc = line_pong(line, c)
            if rc == 0 and self.role in (PUBLISHING, GETTING):
                rc = self.publish_more(line)
            elif rc == 0 and self.role == PULLING:
                rc = self.ask_more(line)
            if rc == 0:
                rc = line_flush(line, c.fd)
            if rc < 0:
                return rc
        return 0

    cdef int take(self, Line *line, const Message *m) noexcept nogil:
        """Process a message; return 1 or a code."""
        cdef const char *error = b'"error"'
        if goes_on_from_text(m.payload, m.size, b"NATS/1.0 503"):
            return CODE_NO_RESPONDERS
        if self.role == ASKING:
            if goes_on_from_text(m.payload, m.size, b'{"type":'):
                with gil:
                    self.answer = m.payload[:m.size]
            return 1                     # skip a late message of a failed run
        if self.role == PUBLISHING or self.role == GETTING:
            if not starts_with_text(
                    m.payload, m.size, b'{"stream":' if self.role == PUBLISHING else b"NATS/1.0\r\n"):
                return self.refuse(m)
            self.latency.add_ns(now_ns() - self.sent[self.got % self.window])
            self.got += 1
            return 1
        if m.header_len and m.header_len == m.size and starts_with_text(m.payload, m.size, b"NATS/1.0 "):
            if m.payload[strlen(b"NATS/1.0 ")] == c'1':     # heartbeat or flow control
                return self.reply(line, m, b" 0\r\n\r\n") if m.reply != NULL else 1
            return 1 if self.role == PUSHED else self.refuse(m)
        if m.reply == NULL:              # the answer to the consumer's creation
            return self.refuse(m) if memmem(m.payload, m.size, error, strlen(error)) != NULL else 1
        self.got += 1
        self.payloads += m.size
        return self.reply(line, m, b" 4\r\n+ACK\r\n") if self.acking else 1

    cdef int refuse(self, const Message *m) noexcept nogil:
        with gil:
            self.answer = m.payload[:m.size]
        return CODE_REFUSED

    cdef int reply(self, Line *line, const Message *m, const char *rest) noexcept nogil:
        cdef char *room = line_room(line, strlen(b"PUB ") + m.reply_len + strlen(rest))
        if room == NULL:
            return CODE_NO_MEMORY
        put_text(put(put_text(room, b"PUB "), m.reply, m.reply_len), rest)
        return 1

    cdef int publish_more(self, Line *line) noexcept nogil:
        cdef int64_t now = now_ns()
        cdef char *room
        while self.asked < self.total and self.asked - self.got < self.window:
            room = line_room(line, self.publish_len)
            if room == NULL:
                return 0     # continue after some bytes have been written
            memcpy(room, self.publish_data, self.publish_len)
            if self.subjects > 1:
                put_hex(room + self.number_at, <uint64_t> (self.asked % self.subjects))
            put_hex(room + self.inbox_at, self.replies)
            self.replies += 1
            self.sent[self.asked % self.window] = now
            self.asked += 1
        return 0

    cdef int ask_more(self, Line *line) noexcept nogil:
        cdef char *room
        while self.requested < self.total and self.requested - self.got <= self.batch:
            room = line_room(line, self.request_len)
            if room == NULL:
                return CODE_NO_MEMORY
            memcpy(room, self.request_data, self.request_len)
            self.requested += self.batch
        return 0
