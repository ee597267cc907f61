"""Scenarios of interest that crosses a link: time, CPU and memory until it is known, and changes of it."""

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from gnats.bench.loadgen import PubSub
from gnats.bench.probes import Latency
from gnats.bench.target import Target
from perf.clusters import KNOWN_SECONDS, Pair, configure, link_port, pair
from perf.scenarios import (
    RUN_TIMEOUT,
    Measure,
    Metrics,
    Scenario,
    Settings,
    distinct,
    percentiles,
    resting_bytes,
)
from perf.servers import Kind, Server, ServerError

SUBSCRIPTIONS = 100_000
CHURN_RATE = 10_000  # SUBs a second, and as many UNSUBs
CHURN_TICK = 0.001
CHURN_HELD = 100  # subscriptions that exist at any time
CHURN_SUBJECTS = 10_000
PING, PONG = b"PING\r\n", b"PONG\r\n"


class Seen:
    """Counts a mark in a stream, wherever the stream is cut."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._tail = b""
        self.count = 0

    def feed(self, data: bytes) -> None:
        """Count the marks that these bytes complete."""
        self.count += (self._tail + data).count(self._mark)
        self._tail = (self._tail + data)[1 - len(self._mark) :]


class Wire:
    """A connection through a gate: `down` comes from the dialled server, `up` from the one that dials."""

    def __init__(self, down: socket.socket, up: socket.socket, mark: bytes) -> None:
        self.down = down
        self.up = up
        self.marks = Seen(mark)
        self.pings = Seen(b"\n" + PING)  # a subject may end with PING
        self.pongs = Seen(PONG)
        self.asked = False


class Gate:
    """A port that refuses connections until it opens, and then carries them to a server's port.

    It counts `mark` in what that server says. Behind the last of `count` it sends the other server a PING;
    the PONG says that all before it has been read. `cpu_ns` is read at the first connection and then.
    """

    def __init__(self, port: int, mark: bytes, count: int, cpu_ns: Callable[[], int]) -> None:
        self._to = ("127.0.0.1", port)
        self._mark, self._count, self._cpu_ns = mark, count, cpu_ns
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._waker, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._carry)
        self._known = threading.Event()
        self._begin = 0.0
        self.seconds = 0.0
        self.cpu_spent_ns = 0

    def open(self) -> None:
        """Accept connections from now on."""
        self._listener.listen()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()

    def wait(self, timeout: float) -> bool:
        """Wait until all marks are known; return False after `timeout` seconds."""
        return self._known.wait(timeout)

    def close(self) -> None:
        """Close the port and what goes through it."""
        self._waker.send(b"x")
        if self._thread.ident:
            self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        for each in (self._selector, self._listener, self._waker, self._woken):
            each.close()

    def _carry(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._pass(key.fileobj, key.data)  # type: ignore[arg-type]

    def _accept(self) -> None:
        if not self._begin:
            self._begin, self.cpu_spent_ns = time.monotonic(), -self._cpu_ns()
        up, _ = self._listener.accept()
        wire = Wire(socket.create_connection(self._to), up, self._mark)
        for sock in (wire.down, wire.up):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(sock, selectors.EVENT_READ, wire)

    def _pass(self, sock: socket.socket, wire: Wire) -> None:
        """Carry what one side has said to the other one."""
        try:
            data = sock.recv(1 << 20)
            if data and sock is wire.down:
                wire.up.sendall(self._follow(wire, data))
            elif data:
                wire.down.sendall(data)
        except OSError:
            data = b""
        if data and sock is wire.up:
            wire.pongs.feed(data)
            if wire.asked and wire.pongs.count > wire.pings.count and not self._known.is_set():
                self.seconds, self.cpu_spent_ns = (
                    time.monotonic() - self._begin,
                    self.cpu_spent_ns + self._cpu_ns(),
                )
                self._known.set()
        elif not data:
            for each in (wire.down, wire.up):
                self._selector.unregister(each)
                each.close()

    def _follow(self, wire: Wire, data: bytes) -> bytes:
        """Return what to say to the dialling server for what the dialled one has said."""
        wire.marks.feed(data)
        wire.pings.feed(data)
        if wire.asked or wire.marks.count < self._count or not data.endswith(b"\r\n"):
            return data
        wire.asked = True
        return data + PING


@contextmanager
def interest(kind: Kind, settings: Settings, *, link: str, count: int = SUBSCRIPTIONS) -> Iterator[Measure]:
    """Subscribe to `count` subjects at one server; let another one dial it, and hear of all of them."""
    subjects = distinct(count)

    def measure() -> Metrics:
        with ExitStack() as stack:
            first = stack.enter_context(Server(kind, text=configure(link)))
            load = PubSub(first.target, publishers=0, subscriptions=[subjects], timeout=RUN_TIMEOUT)
            stack.callback(load.close)
            servers = [first]
            gate = Gate(
                link_port(first, link), b" bench.", count, lambda: sum(each.cpu_ns() for each in servers)
            )
            stack.callback(gate.close)
            second = stack.enter_context(Server(kind, text=configure(link, gate.port)))
            servers.append(second)
            resting = resting_bytes(second)
            gate.open()
            if not gate.wait(RUN_TIMEOUT):
                raise ServerError(f"{kind.label} has not told all its interest over a {link}")
            return {
                "known_ms": gate.seconds * 1000,
                "known_cpu_ms": gate.cpu_spent_ns / 1e6,
                "remote_subscription_bytes": (second.rss_bytes() - resting) / count,
            }

    yield measure


class Churn:
    """A client that subscribes and unsubscribes at a steady rate; see CHURN_RATE."""

    def __init__(self, target: Target) -> None:
        self._sock = socket.create_connection((target.host, target.port), KNOWN_SECONDS)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.sendall(target.hello())
        data = b""
        while PONG not in data:
            data += self._sock.recv(65536)
        batch = round(CHURN_RATE * CHURN_TICK)
        self._ticks = [
            b"".join(
                b"SUB churn.%06d %d\r\nUNSUB %d\r\n" % (n, n, (n - CHURN_HELD) % CHURN_SUBJECTS)
                for n in range(first, first + batch)
            )
            for first in range(0, CHURN_SUBJECTS, batch)
        ]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.ticks = 0

    def _run(self) -> None:
        begin = time.monotonic()
        while not self._stopped.wait(max(0.0, begin + self.ticks * CHURN_TICK - time.monotonic())):
            self._sock.sendall(self._ticks[self.ticks % len(self._ticks)])
            self.ticks += 1

    @property
    def subscribed(self) -> int:
        """The SUBs that were sent so far, each with an UNSUB of an earlier one."""
        return self.ticks * round(CHURN_RATE * CHURN_TICK)

    def __enter__(self) -> "Churn":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._sock.close()


def probed(servers: Pair, probe: Latency, probes: int) -> tuple[Metrics, int]:
    """Send messages over a link; return their latency, and the CPU time of both servers."""
    cpu = servers.cpu_ns()
    result = probe.run(probes, timeout=RUN_TIMEOUT)
    return percentiles(result.latency), servers.cpu_ns() - cpu


@contextmanager
def churn(kind: Kind, settings: Settings, *, link: str) -> Iterator[Measure]:
    """Measure single messages over a link, alone and beside changes of interest at the publisher's server."""
    with pair(kind, link) as servers:
        probe = Latency(servers.target, subscriber_at=servers.second.target)
        try:
            servers.wait_for_interest()
            probe.run(200, timeout=RUN_TIMEOUT)

            def measure() -> Metrics:
                idle, idle_cpu = probed(servers, probe, settings.probes)
                with Churn(servers.target) as other:
                    probe.run(200, timeout=RUN_TIMEOUT)
                    before = other.subscribed
                    beside, cpu = probed(servers, probe, settings.probes)
                    changes = other.subscribed - before
                return {
                    "p50_us": idle["p50_us"],
                    "p99_us": idle["p99_us"],
                    "churn_p50_us": beside["p50_us"],
                    "churn_p99_us": beside["p99_us"],
                    "churn_times": beside["p99_us"] / idle["p99_us"],
                    "churn_cpu_us": (cpu - idle_cpu) / max(1, changes) / 1000,
                }

            yield measure
        finally:
            probe.close()


INTEREST_SCENARIOS: list[Scenario] = [
    scenario
    for link, group in (("route", "routes"), ("leaf", "leaf nodes"), ("gateway", "gateways"))
    for scenario in (
        Scenario(
            f"{link}/interest",
            group,
            f"a server with {SUBSCRIPTIONS:,} subscriptions; another one dials it",
            partial(interest, link=link),
            rounds=3,
        ),
        Scenario(
            f"{link}/churn",
            group,
            f"single messages, alone and beside {CHURN_RATE:,} SUB and UNSUB a second at their server",
            partial(churn, link=link),
        ),
    )
]
