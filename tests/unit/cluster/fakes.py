"""Fakes of the data plane, and parts of a cluster made of them."""

from __future__ import annotations

import itertools
import json
from typing import Any

from gnats.clock import time_ns
from gnats.cluster.info import PeerConnect, PeerInfo
from gnats.cluster.route import Route, Target
from gnats.go.url import URL
from gnats.log.logger import Logger

_cids = itertools.count(1)


class Session:
    """Records calls to a route's session."""

    def __init__(self, *args: object, **options: object) -> None:
        self.cid = next(_cids)
        self.args, self.options = args, options
        self.calls: list[tuple[str, Any]] = []
        self.closed_reason = 0
        self.rtt = 0

    def start(self, greeting: bytes, *, expect_connect: bool, auth_timeout: float = 0.0) -> None:
        self.calls.append(("start", (greeting, expect_connect, auth_timeout)))

    def accept_connect(self, *, verbose: bool) -> None:
        self.calls.append(("accept_connect", None))

    def resume(self) -> None:
        self.calls.append(("resume", None))

    def compress(self, greeting: bytes, **terms: object) -> None:
        self.calls.append(("compress", terms | {"greeting": greeting}))

    def set_uncompressed(self, uncompressed: bool) -> None:
        self.calls.append(("set_uncompressed", uncompressed))

    def join(self, **terms: object) -> None:
        self.calls.append(("join", terms))

    def set_permissions(self, permissions: object) -> None:
        self.calls.append(("set_permissions", permissions))

    def set_pings(self, **limits: object) -> None:
        self.calls.append(("set_pings", limits))

    def announce_again(self) -> None:
        self.calls.append(("announce_again", None))

    def drop_account(self, name: bytes) -> None:
        self.calls.append(("drop_account", name))

    def carry(self, name: bytes) -> None:
        self.calls.append(("carry", name))

    def enqueue_proto(self, line: bytes) -> None:
        self.calls.append(("send", line))

    def close_connection(self, reason: int, err: str | None = None) -> None:
        self.closed_reason = int(reason)
        self.calls.append(("close", (reason, err)))

    def abort(self) -> None:
        self.calls.append(("abort", None))

    def snapshot(self) -> dict[str, int]:
        return {"in_msgs": 1, "in_bytes": 2, "out_msgs": 3, "out_bytes": 4, "rtt": self.rtt}

    def take_unlogged(self) -> int:
        return 0

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The INFO lines that were sent, as JSON."""
        return [json.loads(line[5:]) for name, line in self.calls if name == "send"]

    def called(self, name: str) -> list[Any]:
        """Return the arguments of all calls of this name."""
        return [args for each, args in self.calls if each == name]


class Log(Logger):
    """Keeps its lines, without their levels."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        super().__init__(self._keep, logtime=False, debug=True, trace=True)

    def _keep(self, line: bytes) -> None:
        self.lines.append(line.decode().split("] ", 2)[2].rstrip("\n"))

    def of(self, route: Route) -> list[str]:
        """Return what was logged about a route, without its name."""
        return [line.replace(f"{route} - ", "") for line in self.lines if str(route) in line]


def info(remote: str = "R", **fields: object) -> PeerInfo:
    """Make the INFO of a server named after its id, with a pool of 3 unless `fields` say otherwise."""
    values: dict[str, object] = {
        "server_id": remote,
        "server_name": remote.lower(),
        "host": "127.0.0.1",
        "port": 6222,
        "headers": True,
        "cluster": "C",
        "route_pool_size": 3,
    }
    return PeerInfo.read(json.dumps(values | fields).encode())


def route(remote: str = "R", *, dialled: bool = False, explicit: bool = False, account: str = "") -> Route:
    """Make a route to a server, dialled by this one or not, that has no place in a table yet."""
    target = Target(URL("nats", host=f"{remote}:1"), explicit, account) if dialled else None
    made = Route(Session(), "127.0.0.1", 5, target)  # type: ignore[arg-type]
    made.remote_id, made.account = remote, account
    made.peer, made.connect = info(remote), PeerConnect()
    made.url = made.url or URL("nats-route", host=f"{remote}:2", path="/")
    assert made.start <= time_ns()
    return made


def session(of: Route) -> Session:
    assert isinstance(of.session, Session)
    return of.session
