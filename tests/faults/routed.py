"""Uses of a server with routes that reach allocations of their data plane; test_allocations plays them."""

from __future__ import annotations

import json
import re
import select
import socket
import time
from contextlib import ExitStack

from support.wire import header

from .scenes import SYSTEM
from .stage import LIMIT, Silent, Stage

ROUTED = (
    SYSTEM.replace("jetstream: enabled", "")
    + "cluster { name: C, listen: '127.0.0.1:-1', compression: off }\n"
)
MANY, GROUPS = 10, 20
"""Servers, and queue groups of a message: more than fit on the stack, and than fit when that has grown."""
LONG = "a." * 300 + "z"
TRACED = header("Nats-Trace-Dest: traces", "A: b")


class Route:
    """A connection of another server, which the server may close at any time. Its methods then do nothing."""

    def __init__(self, stage: Stage, number: int, **info: object) -> None:
        found = re.search(r"Listening for route connections on (\S+):(\d+)", stage.server.log)
        assert found
        self.gone = False
        self._heard = b""
        self._socket = socket.create_connection((found[1], int(found[2])), 30)
        about = {"headers": True, "cluster": "C", "lnoc": True, "lnocu": True, "proto": 3}
        connect = about | {"name": f"R{number}", "verbose": False, "pedantic": False}
        told = about | {"server_id": f"R{number}", "server_name": f"r{number}", "host": "h", "port": 1} | info
        self.send(f"CONNECT {json.dumps(connect)}\r\nINFO {json.dumps(told)}\r\n")

    def send(self, text: str, data: bytes = b"") -> None:
        try:
            self._socket.sendall(text.encode() + data)
        except OSError:
            self.gone = True

    def message(self, line: str, block: bytes, payload: bytes = b"") -> None:
        size = f"{len(block)} {len(block) + len(payload)}" if block else f"{len(payload)}"
        self.send(f"{'HMSG' if block else 'RMSG'} {line} {size}\r\n", block + payload + b"\r\n")

    def fence(self) -> bytes:
        """Send a PING; return what has come before its PONG, or before the end. Raises Silent."""
        self.send("PING\r\n")
        limit = time.monotonic() + LIMIT
        while not self.gone and b"PONG\r\n" not in self._heard:
            if time.monotonic() > limit:
                raise Silent("no PONG of a route")
            if select.select([self._socket], [], [], 1)[0]:
                self._read()
        heard, _, self._heard = self._heard.partition(b"PONG\r\n")
        return heard

    def _read(self) -> None:
        try:
            data = self._socket.recv(1 << 20)
        except OSError:
            data = b""
        self.gone |= not data
        self._heard += data

    def close(self) -> None:
        self._socket.close()


def announcing(stage: Stage) -> None:
    """Clients subscribe before and after a server comes; an account of its own; long subjects."""
    a = stage.peer()
    for subject in ("one.*", LONG, "group.x"):
        a.subscribe(subject)
        a.subscribe(subject, "g")
    a.fence()
    routes = [Route(stage, 1), Route(stage, 2, route_pool_size=3, route_account="SYS")]
    for route in routes:
        route.fence()
    for n in range(40):
        a.subscribe(f"{stage.name}.{n}", "queue" * (n % 2))
    a.fence()
    for route in routes:
        route.fence()
        route.close()


def routing(stage: Stage) -> None:
    """Messages to many servers and from one: groups, headers, traces, long subjects, large payloads."""
    with ExitStack() as stack:
        routes = [Route(stage, number) for number in range(1, MANY + 1)]
        for route in routes:
            stack.callback(route.close)
            route.send(f"RS+ A to.*\r\nRS+ A {LONG}\r\nRS+ NOPE foo\r\nRS- NOPE foo\r\nRS+ A a..b\r\n")
            route.send("".join(f"RS+ A to.x g{n} 2\r\nRS+ A {LONG} g{n} 1\r\n" for n in range(GROUPS)))
            route.send("".join(f"LS+ origin A {LONG}.{n}\r\n" for n in range(40)))
        for route in routes:
            route.fence()
        a = stage.peer(verbose=False)
        a.subscribe("here.>")
        a.subscribe("traces")
        a.fence()
        for subject in ("to.x", LONG):
            a.publish(subject, b"hi", "reply.to")
            a.publish(subject, b"y" * 70_000)
            a.publish(subject, b"hi", header=TRACED)
            a.publish(subject, b"y" * 70_000, header=header("A: b"))
        a.fence()
        for route in routes:
            route.fence()
        first = routes[0]
        first.message("A here.x", b"", b"hi")
        first.message(f"A here.{LONG} + reply g1 g2", b"", b"y" * 70_000)
        first.message("A here.x | " + " ".join(f"g{n}" for n in range(40)), TRACED, b"hi")
        first.message("NOPE here.x", b"", b"hi")
        first.message(
            "A here.x $JS.ACK.a.b.1.2.3.4.5@shown", header("Nats-Trace-Dest: traces", "Nats-Trace-Only: 1")
        )
        first.fence()
        a.fence()
        first.send(f"RS- A {LONG}\r\nRS+ A to.x g0 5\r\nRS+ A to.x g1 0\r\n")
        first.fence()
