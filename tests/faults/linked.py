"""Uses of a server with links of all kinds that reach allocations of their data plane.

test_allocations plays them.
"""

from __future__ import annotations

import json
import re
import select
import socket
import time
from contextlib import ExitStack

from support.gatewaypeer import name_hash
from support.wire import header

from .scenes import SYSTEM
from .stage import LIMIT, SLICE, Silent, Stage

LINKS = (
    SYSTEM.replace("jetstream: enabled", "")
    + "cluster { name: C, listen: '127.0.0.1:-1', compression: off }\n"
    + "leafnodes { listen: '127.0.0.1:-1', compression: off }\n"
    + "gateway { name: C, listen: '127.0.0.1:-1' }\n"
)
MANY, GROUPS = 10, 20
"""Servers, and queue groups of a message: more than fit on the stack, and than fit when that has grown."""
LONG = "a." * 300 + "z"
TRACED = header("Nats-Trace-Dest: traces", "A: b")


class Link:
    """A connection of another server, which the server may close at any time. Its methods then do nothing."""

    def __init__(self, sock: socket.socket) -> None:
        self.gone = False
        self._heard = b""
        self._socket = sock

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


class Route(Link):
    """A route that another server has dialled."""

    def __init__(self, stage: Stage, number: int, **info: object) -> None:
        super().__init__(dial(stage, r"Listening for route connections on (\S+):(\d+)"))
        about = {"headers": True, "cluster": "C", "lnoc": True, "lnocu": True, "proto": 3}
        connect = about | {"name": f"R{number}", "verbose": False, "pedantic": False}
        told = about | {"server_id": f"R{number}", "server_name": f"r{number}", "host": "h", "port": 1} | info
        self.send(f"CONNECT {json.dumps(connect)}\r\nINFO {json.dumps(told)}\r\n")


class Leaf(Link):
    """A leaf node that has dialled the server."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(dial(stage, r"Listening for leafnode connections on (\S+):(\d+)"))
        connect = {"version": "2.15.1", "server_id": "L", "name": "l", "cluster": "L", "headers": True}
        self.send(f"CONNECT {json.dumps(connect | {'protocol': 1, 'user': 'a', 'pass': 'p'})}\r\n")


class Cluster:
    """Another cluster of one server, which has dialled this one, and which this one dials."""

    def __init__(self, stage: Stage, stack: ExitStack, name: str) -> None:
        self.name = name
        self._stage = stage
        self._stack = stack
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._info = {
            "server_id": f"G{name}", "server_name": name, "gateway": name, "host": "h", "port": 1, "proto": 3,
            "headers": True, "gateway_nrp": True, "gateway_iom": True,
            "gateway_urls": [f"127.0.0.1:{self._listener.getsockname()[1]}"],
        }  # fmt: skip
        connect = {"name": f"G{name}", "gateway": name, "verbose": False, "pedantic": False}
        self.inbound = Link(dial(stage, r"Listening for gateways connections on (\S+):(\d+)"))
        stack.callback(self.inbound.close)
        self.inbound.send(f"CONNECT {json.dumps(connect)}\r\nINFO {json.dumps(self._info)}\r\n")

    def accept(self) -> Link | None:
        """Wait until the server has dialled; None: it reports that it cannot. Raises Silent."""
        limit = time.monotonic() + LIMIT
        while not select.select([self._listener], [], [], SLICE)[0]:
            if self._stage.lacks_memory or self.inbound.gone:
                return None
            if time.monotonic() > limit:
                raise Silent("the gateway is not dialled")
        link = Link(self._listener.accept()[0])
        self._stack.callback(link.close)
        link.send(f"INFO {json.dumps(self._info)}\r\n")
        return link


def dial(stage: Stage, listening: str) -> socket.socket:
    found = re.search(listening, stage.server.log)
    assert found
    return socket.create_connection((found[1], int(found[2])), 30)


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


def leading(stage: Stage) -> None:
    """A leaf node is told of long subjects and of mapped ones, before and after it comes."""
    a = stage.peer()
    a.subscribe(LONG)
    a.fence()
    leaf = Leaf(stage)
    leaf.fence()
    a.subscribe(LONG + ".more", "g")
    a.fence()
    leaf.send(f"LS+ to.*\r\nLS+ {LONG}.here\r\n")
    leaf.fence()
    a.publish("to.x", b"hi", header=TRACED)
    a.publish(f"{LONG}.here", b"hi")
    a.fence()
    leaf.fence()
    leaf.close()


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


def crossing(stage: Stage) -> None:
    """Messages to and from another cluster: groups, headers, traces, long names, accounts that come later."""
    with ExitStack() as stack:
        cluster = Cluster(stage, stack, f"F{stage.name}")
        inbound = cluster.inbound
        a = stage.peer(verbose=False)
        for subject in ("here.>", LONG, "traces"):
            a.subscribe(subject)
            a.subscribe(subject, "g")
        a.fence()
        inbound.fence()
        outbound = cluster.accept()
        if outbound is None:
            return
        outbound.send(f"RS+ A to.*\r\nRS+ A {LONG}\r\nRS+ A a..b\r\nRS- NOPE foo\r\n")
        outbound.send("".join(f"RS+ A to.x g{n} 1\r\nRS+ A {LONG} g{n} 1\r\n" for n in range(GROUPS)))
        for name in "LATER", LONG:
            outbound.send("".join(f"RS+ {name} x.{n}\r\nRS+ {name} {LONG}.{n} g 1\r\n" for n in range(20)))
            outbound.send(f"RS- {name} x.1\r\nRS- {name} {LONG}.1 g\r\n")
        outbound.fence()
        for subject in ("to.x", LONG):
            a.publish(subject, b"hi", "reply.to")
            a.publish(subject, b"y" * 70_000)
            a.publish(subject, b"hi", header=TRACED)
        a.fence()
        outbound.fence()
        inbound.message("A here.x", b"", b"hi")
        inbound.message(f"A here.{LONG} + reply g", b"", b"y" * 70_000)
        inbound.message("A here.x | g", TRACED, b"hi")
        for n in range(10):
            inbound.message(f"NOPE{n} here.x", b"", b"hi")
        for reply in "r.x", LONG:
            inbound.message(f"A here.x _GR_.{name_hash(cluster.name).decode()}.SSSSSS.{reply}", b"", b"?")
            inbound.fence()
            a.fence()
            a.publish(reply, b"so")
            a.fence()
        outbound.fence()
        more = f"accounts {{ LATER {{ }}, {LONG} {{ }}"
        if stage.reload(stage.config.replace("accounts {", more)):
            outbound.fence()
            inbound.fence()
        assert stage.reload(stage.config) or stage.is_reported
        outbound.fence()
