"""Scenarios of a server with many routes: peers that are not there read what it sends, and drop it."""

import json
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from gnats.bench.loadgen import PubSub
from perf.clusters import configure, link_port
from perf.scenarios import RUN_TIMEOUT, Measure, Metrics, Scenario, Settings
from perf.servers import Kind, Server, ServerError

COUNTS = (1, 2, 4, 8)
SIZE = 128
BURST = 20_000  # messages that may wait for the peers: none is slow
BURSTS_PER_SECOND = 15  # of the length of a measurement, roughly
READ_SECONDS = 15.0


def _verb(verb: str, members: dict[str, object]) -> bytes:
    return f"{verb} {json.dumps(members)}\r\n".encode()


class Peers:
    """Routes of servers that are not there; the first `interested` of `count` subscribe to "bench"."""

    def __init__(self, port: int, count: int, interested: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._waker, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._room = bytearray(1 << 20)
        self._thread = threading.Thread(target=self._read)
        self._socks: list[socket.socket] = []
        self.got = 0
        """The bytes that came so far."""
        for number in range(count):
            self._socks.append(self._join(port, number, number < interested))
        for sock in self._socks:
            self._selector.register(sock, selectors.EVENT_READ)
        self._thread.start()

    def _join(self, port: int, number: int, interested: bool) -> socket.socket:
        """Dial, greet, and wait until the server has read all of it."""
        name = f"NPEER{number:051d}"
        sock = socket.create_connection(("127.0.0.1", port), READ_SECONDS)
        greeting = {"verbose": False, "pedantic": False, "headers": True, "name": name, "cluster": "C"}
        about = {
            "server_id": name,
            "server_name": f"peer{number}",
            "version": "2.15.1",
            "proto": 3,
            "host": "127.0.0.1",
            "port": 1,
            "headers": True,
            "max_payload": 1 << 20,
            "cluster": "C",
            "gossip_mode": 1,
        }
        told = b"RS+ $G bench\r\n" if interested else b""
        sock.sendall(_verb("CONNECT", greeting | {"lnoc": True}) + _verb("INFO", about | {"lnoc": True}))
        sock.sendall(told + b"PING\r\n")
        data = b""
        while b"PONG\r\n" not in data:
            more = sock.recv(65536)
            if not more:
                raise ServerError(f"the server refuses a route: {data!r}")
            data += more
        return sock

    def _read(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    return
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                count = sock.recv_into(self._room)
                self.got += count
                if not count:
                    self._selector.unregister(sock)

    def answer(self) -> None:
        """Answer the PINGs that may have come."""
        for sock in self._socks:
            sock.sendall(b"PONG\r\n")

    def wait_for(self, got: int) -> None:
        """Wait until that many bytes have come. Raises ServerError."""
        deadline = time.monotonic() + READ_SECONDS
        while self.got < got:
            if time.monotonic() > deadline:
                raise ServerError(f"{got - self.got} bytes have not come over the routes")
            time.sleep(0.0005)

    def close(self) -> None:
        """Close the routes."""
        self._waker.send(b"x")
        self._thread.join()
        for sock in (*self._socks, self._waker, self._woken):
            sock.close()
        self._selector.close()


@contextmanager
def mesh(kind: Kind, settings: Settings, *, count: int, interested: int) -> Iterator[Measure]:
    """Publish at a server with `count` routes, of which some have interest; measure its CPU."""
    with ExitStack() as stack:
        server = stack.enter_context(Server(kind, text=configure("route")))
        peers = Peers(link_port(server, "route"), count, interested)
        stack.callback(peers.close)
        load = stack.enter_context(PubSub(server.target, size=SIZE))
        message = len(b"RMSG $G bench %d\r\n" % SIZE) + SIZE + 2

        def burst() -> None:
            got = peers.got
            load.run(BURST, timeout=RUN_TIMEOUT)
            peers.wait_for(got + BURST * message * interested)

        def measure() -> Metrics:
            bursts = max(1, round(settings.seconds * BURSTS_PER_SECOND))
            peers.answer()
            burst()
            cpu = server.cpu_ns()
            for _ in range(bursts):
                burst()
            return {"publish_cpu_ns": (server.cpu_ns() - cpu) / (bursts * BURST)}

        yield measure


MESH_SCENARIOS: list[Scenario] = [
    Scenario(
        f"mesh/{name}/{count}",
        "mesh",
        f"{SIZE}B at a server with {count} routes, {about}",
        partial(mesh, count=count, interested=count if name == "all" else 1),
    )
    for name, about in (("one", "one of them with interest"), ("all", "all of them with interest"))
    for count in COUNTS
]
