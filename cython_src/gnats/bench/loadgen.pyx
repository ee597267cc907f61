"""Publishers and subscribers that cost little CPU: one thread, no GIL, so that a run measures the server.

A publisher writes large pieces of one pre-built run of PUBs, over and over. A subscriber only counts. Publishers
are at most `window` bytes ahead of deliveries, so a run does not measure queues that real clients would not let
grow. After each run, every subscriber sends a PING and waits for the PONG, which reveals a message too many as
well as one too few.
"""
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport calloc, free

import time

from gnats.bench.fleet cimport Conn, Fleet
from gnats.bench.frames cimport Frames
from gnats.bench.sys cimport now_ns, thread_cpu_ns
from gnats.includes.units cimport SECOND

from gnats.bench.results import LoadError, PubSubResult, Sample

cdef const char *PING = b"PING\r\n"

cdef enum:
    BATCH_BYTES = 256 * 1024
    CHUNK_BYTES = 64 * 1024      # one publisher's turn


cdef enum:
    PUBLISHING
    FLUSHING                     # the PING after the last message has been queued
    DONE                         # its PONG has arrived


cdef struct Tally:
    int64_t share        # publisher: messages to publish in this run
    int64_t todo         # publisher: those not yet queued
    int64_t position     # publisher: index of the next message in the pre-built PUBs
    int phase            # publisher: PUBLISHING, FLUSHING or DONE
    int64_t before       # subscriber: messages before this run, and their bytes
    int64_t before_bytes
    int64_t first_ns
    int64_t last_ns


cdef class PubSub:
    """Publishers and subscribers, each on a connection of its own.

    publishers: their number; together they publish `size` bytes to `subjects` in turn, all of one length.
    payloads: what they publish in turn, each of `size` bytes; by default one of equal bytes.
    subscriptions: for each subscriber the subjects it subscribes to.
    queue: the queue group of all subscribers, if any.
    subscribers_at: the target of the subscribers, if it is another.
    fanout: deliveries of each message; by default one to every subscriber, or one when there is a queue.
    window: bytes that may be published or on their way to subscribers at any time.

    `subscribe_seconds` is the time until all subscriptions were confirmed. Raises ValueError for invalid
    arguments, LoadError when the server refuses or fails.
    """

    cdef Fleet fleet
    cdef bytes batch
    cdef const char *data
    cdef int64_t batch_count
    cdef size_t frame
    cdef Tally *tallies
    cdef int publishers
    cdef int subscribers
    cdef int64_t fanout
    cdef int64_t window
    cdef int size
    cdef readonly double subscribe_seconds
    # the present run
    cdef int64_t published
    cdef int64_t delivered
    cdef int64_t expected        # deliveries of the previous run
    cdef int64_t confirmed       # publishers whose PONG has arrived
    cdef int64_t start_ns
    cdef double rate
    cdef unsigned int turn       # which publisher comes first
    cdef volatile bint stopped

    def __init__(
        self,
        target,
        *,
        int publishers=1,
        subjects=("bench",),
        payloads=(),
        subscriptions=(),
        subscribers_at=None,
        str queue="",
        int size=128,
        fanout=None,
        int64_t window=16 * 1024 * 1024,
        double timeout=60.0,
    ):
        self.publishers = publishers
        self.subscribers = len(subscriptions)
        if size < 0 or publishers < 0 or publishers + self.subscribers == 0:
            raise ValueError(f"a load of {publishers} publishers, {self.subscribers} subscribers of {size} B")
        if publishers and len({len(subject) for subject in subjects}) != 1:
            raise ValueError("the subjects to publish to must be of one length")
        if any(len(payload) != size for payload in payloads):
            raise ValueError(f"payloads of another size than {size} B")
        self.size = size
        self.fanout = fanout if fanout is not None else 1 if queue and subscriptions else self.subscribers
        self.build_batch(subjects if publishers else ("none",), payloads or (b"x" * size,))
        self.window = max(8, window // (<int64_t>self.frame * max(1, self.fanout)))
        self.tallies = <Tally *>calloc(publishers + self.subscribers, sizeof(Tally))
        if self.tallies == NULL:
            raise MemoryError(f"{publishers + self.subscribers} connections")
        self.fleet = Fleet(
            target, publishers + self.subscribers, timeout=timeout, elsewhere=subscribers_at,
            first_elsewhere=publishers)
        self.subscribe(subscriptions, queue, timeout)

    def __dealloc__(self):
        free(self.tallies)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self.fleet.close()

    def stop(self) -> None:
        """End the present or next run after the messages that are already published. Any thread."""
        self.stopped = True

    cdef build_batch(self, subjects, payloads):
        cdef list frames = [
            b"PUB %b %d\r\n%b\r\n" % (s.encode(), self.size, payload) for payload in payloads for s in subjects]
        self.frame = len(frames[0])
        cdef int64_t times = max(1, BATCH_BYTES // (<int64_t>self.frame * len(frames)))
        self.batch = b"".join(frames) * times
        self.batch_count = times * len(frames)
        self.data = self.batch

    cdef subscribe(self, subscriptions, str queue, double timeout):
        cdef str group = f" {queue}" if queue else ""
        cdef list buffers = []
        for subjects in subscriptions:
            lines = [f"SUB {subject}{group} {sid}\r\n" for sid, subject in enumerate(subjects, 1)]
            buffers.append("".join(lines).encode() + PING)
        if buffers:
            self.subscribe_seconds = self.fleet.exchange(self.publishers, buffers, timeout=timeout)

    def run(self, int64_t messages, *, double timeout=60.0, double rate=0.0, bint settle=True, progress=None):
        """Publish `messages` in all, wait for all deliveries; return a PubSubResult.

        rate: messages a second in all, 0 for as fast as possible.
        settle: whether to settle() at the end.
        progress: called about ten times a second with the messages published and delivered until then.
        Without publishers, wait for `messages` from other clients.
        Raises LoadError after `timeout` seconds, and for one message too few or too many.
        """
        cdef int64_t expected = messages * self.fanout
        cdef double deadline = time.monotonic() + timeout
        cdef int64_t cpu = thread_cpu_ns()
        cdef int rc = 0
        self.begin(messages, rate)
        while not (self.confirmed == self.publishers and self.delivered >= expected):
            with nogil:
                rc = self.pump(expected, now_ns() + 100_000_000)
            if self.stopped:
                expected = self.published * self.fanout if self.publishers else self.delivered
            self.fleet.check(rc, deadline, "waiting for deliveries", self.delivered, expected)
            if self.delivered >= expected:
                self.fleet.check(rc, deadline, "waiting for PONGs", self.confirmed, self.publishers)
            if progress is not None:
                progress(self.published, self.delivered)
        cdef int64_t end = now_ns()
        cpu = thread_cpu_ns() - cpu
        self.stopped = False
        self.expected = expected
        if settle:
            self.settle(timeout=max(1.0, deadline - time.monotonic()))
        return self.result(end, cpu)

    cdef begin(self, int64_t messages, double rate):
        cdef int i
        cdef int64_t share
        self.published = self.delivered = self.confirmed = 0
        self.rate = rate
        self.start_ns = now_ns()
        for i in range(self.publishers):
            share = messages // self.publishers + (i < messages % self.publishers)
            self.tallies[i].share = self.tallies[i].todo = share
            self.tallies[i].position = i * self.batch_count // self.publishers
            self.tallies[i].phase = PUBLISHING
        for i in range(self.publishers, self.publishers + self.subscribers):
            self.tallies[i].before = self.fleet.conns[i].frames.messages
            self.tallies[i].before_bytes = self.fleet.conns[i].frames.bytes
            self.tallies[i].first_ns = self.start_ns if self.publishers else 0

    def settle(self, *, double timeout=60.0) -> None:
        """Exchange PING and PONG on every subscriber. Raises LoadError when there was a message too many."""
        cdef int64_t delivered = 0
        cdef int i
        if self.subscribers == 0:
            return
        self.fleet.exchange(self.publishers, [PING] * self.subscribers, timeout=timeout)
        for i in range(self.publishers, self.publishers + self.subscribers):
            delivered += self.fleet.conns[i].frames.messages - self.tallies[i].before
        if delivered != self.expected and self.publishers:
            where = f"server {self.fleet.target}"
            raise LoadError(f"{where}: expected {self.expected:,} deliveries, counted {delivered:,}")

    cdef result(self, int64_t end, int64_t cpu):
        cdef int i
        cdef Tally *t
        cdef Frames *f
        cdef int64_t count
        cdef int64_t size = self.published * self.size
        cdef int64_t start = self.start_ns
        cdef double lasted
        cdef list publishers = [], subscribers = []
        for i in range(self.publishers + self.subscribers):
            t = &self.tallies[i]
            if i < self.publishers:
                count = t.share - t.todo
                lasted = max(1, t.last_ns - self.start_ns) / <double> SECOND
                publishers.append(Sample(count, count * self.size, lasted))
            else:
                f = &self.fleet.conns[i].frames
                count = f.messages - t.before
                size += f.bytes - t.before_bytes
                lasted = max(1, t.last_ns - t.first_ns) / <double> SECOND
                subscribers.append(Sample(count, f.bytes - t.before_bytes, lasted))
        if not self.publishers:
            start = min([self.tallies[i].first_ns for i in range(self.subscribers)])
        return PubSubResult(
            published=self.published,
            delivered=self.delivered,
            bytes=size,
            seconds=(end - start) / <double> SECOND,
            publishers=publishers,
            subscribers=subscribers,
            generator_cpu_seconds=cpu / <double> SECOND,
        )

    cdef int pump(self, int64_t expected, int64_t until_ns) noexcept nogil:
        """Move messages until the run is complete or the time is `until_ns`; return 0 or a code."""
        cdef int i, n, rc, timeout_ms = 0
        cdef int64_t allowed, now
        while True:
            n = self.fleet.wait(timeout_ms)
            if n < 0:
                return n
            now = now_ns()
            for i in range(n):
                rc = self.receive(self.fleet.events[i].data.u32, now)
                if rc < 0:
                    return rc
            if self.confirmed == self.publishers and self.delivered >= expected:
                return 0
            if now > until_ns:
                return 0
            allowed = self.allowance(now)
            timeout_ms = 1 if self.rate > 0 else 20
            self.turn += 1
            for i in range(self.publishers):
                rc = self.publish((self.turn + i) % self.publishers, &allowed)
                if rc < 0:
                    return rc
                if rc > 0:
                    timeout_ms = 0

    cdef int64_t allowance(self, int64_t now) noexcept nogil:
        """Return the number of messages that may be published now."""
        cdef int64_t allowed = INT64_MAX
        if self.fanout > 0:
            allowed = self.window - (self.published - self.delivered // self.fanout)
        if self.rate > 0:
            allowed = min(allowed, <int64_t>(self.rate * (now - self.start_ns) / SECOND) - self.published)
        return max(allowed, 0)

    cdef int receive(self, int index, int64_t now) noexcept nogil:
        """Read all available bytes of a connection; return 0 or a code."""
        cdef Conn *c = &self.fleet.conns[index]
        cdef Tally *t = &self.tallies[index]
        cdef int64_t before = c.frames.messages
        cdef int rc = self.fleet.read(index)
        if rc == 0:
            rc = min(self.fleet.write(index), 0)
        if c.frames.messages != before:
            if t.first_ns == 0:
                t.first_ns = now
            t.last_ns = now
            self.delivered += c.frames.messages - before
        if t.phase == FLUSHING and c.frames.pongs >= c.asked:
            t.phase = DONE
            t.last_ns = now
            self.confirmed += 1
        return rc

    cdef int publish(self, int index, int64_t *allowed) noexcept nogil:
        """Give a publisher one turn; return 1 when it could write more at once, 0 when not, or a code."""
        cdef Tally *t = &self.tallies[index]
        cdef Conn *c = &self.fleet.conns[index]
        cdef int64_t count
        if c.out_off < c.out_len or t.phase != PUBLISHING:
            return 0                     # the socket is full (EPOLLOUT leads to receive), or the publisher is done
        if t.todo == 0 or self.stopped:
            t.phase = FLUSHING
            c.asked += 1
            self.fleet.put(index, PING, 6)
            return min(self.fleet.write(index), 0)
        count = min(min(t.todo, allowed[0]), self.batch_count - t.position)
        count = min(count, max(1, <int64_t>(CHUNK_BYTES // self.frame)))
        if count == 0:
            return 0
        self.fleet.put(index, self.data + t.position * self.frame, count * self.frame)
        t.position = (t.position + count) % self.batch_count
        t.todo -= count
        allowed[0] -= count
        self.published += count
        return self.fleet.write(index)
