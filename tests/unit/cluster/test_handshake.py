"""CONNECT and INFO of routes: refusals with their log lines, and what a session is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from gnats.cluster.handshake import Handshake
from gnats.cluster.info import OwnInfo, PeerInfo
from gnats.cluster.name import ClusterName
from gnats.cluster.route import Route, Target
from gnats.cluster.routes import Added, Routes
from gnats.connection.closed_state import ClosedState
from gnats.go.url import URL
from gnats.nkeys.identity import Identity
from gnats.options.options import Options
from gnats.options.values.auth import SubjectPermission
from gnats.options.values.cluster import ClusterOptions, Compression, RoutePermissions

from .fakes import Log, Session, session

pytestmark = pytest.mark.timeout(60)


class Server:
    """The parts of a server that shake hands, and what follows from it."""

    def __init__(self, **cluster: Any) -> None:
        values: dict[str, Any] = {"name": "C", "port": 6222, "accounts": ("S",)}
        self.opts = Options(cluster=ClusterOptions(**values | cluster)).baseline()
        self.log = Log()
        self.name = ClusterName(lambda: self.opts.cluster, self._rename)
        self.own = OwnInfo(Identity("ME", "me"), lambda: self.opts, self.name, tuple)
        self.routes = Routes(self.opts.cluster.pool_size, self.opts.cluster.accounts)
        self.events: list[tuple[str, object]] = []
        self.tasks: list[asyncio.Task[None]] = []
        parts = "ME", "me", self.own, self.name, self.routes, self, self.log
        self.handshake = Handshake(*parts, options=lambda: self.opts, spawn=self._spawn)

    def _rename(self, name: str, generated: bool) -> None:
        self.opts.cluster = replace(self.opts.cluster, name=name, generated=generated)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]

    def name_changed(self, remote_id: str) -> None:
        self.events.append(("name_changed", remote_id))

    def about_gateways(self) -> bytes:
        return b""

    def joined(self, route: Route, info: PeerInfo, added: Added, *, dialled: bool) -> None:
        self.events.append(("joined", added))

    def informed(self, route: Route, info: PeerInfo) -> None:
        self.events.append(("informed", info.server_id))

    def refused(self, route: Route) -> None:
        pass

    def has_account(self, name: str) -> bool:
        return name != "NONE"

    def make_room(self, route: Route) -> None:
        return

    def accepted(self) -> Route:
        return Route(Session(), "127.0.0.1", 5)  # type: ignore[arg-type]

    def dialled(self, **target: Any) -> Route:
        url = URL("nats", host="h:1")
        return Route(Session(), "127.0.0.1", 5, Target(url, **target))  # type: ignore[arg-type]

    def connect(self, route: Route, **fields: object) -> Route:
        values: dict[str, object] = {"name": "R", "cluster": "C"}
        self.handshake.process_connect(route, json.dumps(values | fields).encode())
        return route

    def info(self, route: Route, **fields: object) -> Route:
        values: dict[str, object] = {
            "server_id": "R",
            "server_name": "r",
            "host": "0.0.0.0",
            "port": 6222,
            "cluster": "C",
            "headers": True,
            "route_pool_size": 3,
        }
        self.handshake.process_info(route, json.dumps(values | fields).encode())
        return route


def closed(route: Route) -> list[tuple[ClosedState, str | None]]:
    return session(route).called("close")


def test_a_connect_is_accepted() -> None:
    server = Server()
    route = server.connect(server.accepted())
    assert [name for name, _ in session(route).calls] == ["accept_connect"]
    assert (route.remote_id, route.connected) == ("R", True)


@pytest.mark.parametrize(
    ("fields", "reason", "error", "logged"),
    [
        (
            {"lang": "go"},
            ClosedState.WRONG_PORT,
            "attempted to connect to route port",
            ["attempted to connect to route port - user:u", "attempted to connect to route port"],
        ),
        (
            {"gateway": "G"},
            ClosedState.WRONG_GATEWAY,
            'Rejecting connection from gateway "G" on the Route port',
            ['Rejecting connection from gateway "G" on the Route port', "wrong gateway"],
        ),
        (
            {"cluster": "D"},
            ClosedState.CLUSTER_NAME_CONFLICT,
            'Rejecting connection, cluster name "D" does not match "C"',
            [
                'Rejecting connection, cluster name "D" does not match "C"',
                "cluster name from remote server conflicts",
            ],
        ),
        (
            {"pass": "x"},
            ClosedState.AUTHENTICATION_VIOLATION,
            "Authorization Violation",
            ['authentication error - User "u"'],
        ),
        (
            {"user": "x"},
            ClosedState.AUTHENTICATION_VIOLATION,
            "Authorization Violation",
            ['authentication error - User "x"'],
        ),
        (
            {"user": ""},
            ClosedState.AUTHENTICATION_VIOLATION,
            "Authorization Violation",
            ["authentication error"],
        ),
        (
            {"account": "A"},
            ClosedState.AUTHENTICATION_VIOLATION,
            "Authorization Violation",
            ['authentication error - User "u"'],
        ),
        (
            {"echo": "x"},
            ClosedState.PROTOCOL_VIOLATION,
            None,
            ["json: cannot unmarshal string into Go struct field ClientOpts.echo of type bool"],
        ),
    ],
)
def test_refused_connects(
    fields: dict[str, object], reason: ClosedState, error: str | None, logged: list[str]
) -> None:
    server = Server(username="u", password="p")
    route = server.connect(server.accepted(), **{"user": "u", "pass": "p"} | fields)
    assert closed(route) == [(reason, error)]
    assert not session(route).called("accept_connect")
    lines = [line for line in server.log.of(route) if "<<-" not in line and "->>" not in line]
    assert lines == logged
    assert '"[REDACTED]"' in server.log.lines[0]


async def test_a_bcrypt_password_is_checked_in_a_thread() -> None:
    stored = "$2a$04$AykRcg9LkYrDFVnwQtHwUO5wkH0chBZs4dSnmkL2EkZPkLoCwyIPe"
    server = Server(username="u", password=stored)
    route = server.connect(server.accepted(), user="u", **{"pass": "wrong"})
    assert not session(route).calls
    await server.tasks[0]
    assert [reason for reason, _ in closed(route)] == [ClosedState.AUTHENTICATION_VIOLATION]
    gone = server.connect(server.accepted(), user="u", **{"pass": "wrong"})
    gone.session = None
    await server.tasks[1]


async def test_a_check_that_fails_refuses_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_thread(*_: object) -> bool:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("gnats.cluster.login.check_password_async", no_thread)
    server = Server(username="u", password="$2a$04$AykRcg9LkYrDFVnwQtHwUO5wkH0chBZs4dSnmkL2EkZPkLoCwyIPe")
    route = server.connect(server.accepted(), user="u", **{"pass": "p"})
    await asyncio.wait(server.tasks)
    assert [reason for reason, _ in closed(route)] == [ClosedState.AUTHENTICATION_VIOLATION]
    assert 'Authentication failed: RuntimeError("can\'t start new thread")' in server.log.of(route)


def test_a_name_taken_over_closes_the_others() -> None:
    server = Server(name="A", generated=True)
    server.connect(server.accepted(), cluster="B", cluster_dynamic=True)
    assert (str(server.name), server.name.generated) == ("B", True)
    route = server.info(server.dialled(), cluster="AA")
    assert (str(server.name), server.name.generated) == ("AA", True)
    assert server.events[:2] == [("name_changed", "R"), ("name_changed", "R")]
    assert session(route).called("join")
    server.connect(server.accepted(), cluster="Q")
    assert (str(server.name), server.name.generated) == ("Q", False)


def test_an_accepted_route_joins_where_the_peer_says() -> None:
    permissions = RoutePermissions(SubjectPermission(("a",)), SubjectPermission(("b",)))
    server = Server(permissions=permissions)
    route = server.info(server.connect(server.accepted()), route_pool_idx=1)
    [terms] = session(route).called("join")
    compiled = terms.pop("permissions")
    assert compiled.publish_allowed(b"a")
    assert not compiled.publish_allowed(b"b")
    assert compiled.subscribe_allowed(b"b")
    assert terms == {
        "greeting": b"",
        "pool_index": 1,
        "pool_size": 3,
        "account": b"",
        "pinned": (b"S", b"$SYS"),
        "headers": True,
        "traces": False,
        "origins": 0,
        "measure": False,
        "digests": False,
        "passes": False,
    }
    assert route.url == URL("nats-route", host="0.0.0.0:6222", path="/")
    assert route.peer
    assert route.peer.ip == "nats-route://127.0.0.1:6222/"
    assert server.log.of(route)[-1] == 'Registering remote route "R"'
    assert server.events == [("joined", Added(first=True, forward=False, full=False))]


def test_a_route_that_was_dialled_answers_with_its_place() -> None:
    server = Server()
    first, second = server.info(server.dialled(explicit=True)), server.info(server.dialled())
    [terms] = session(first).called("join")
    assert json.loads(terms["greeting"][5:]).get("route_pool_idx", 0) == 0
    assert (terms["pool_index"], terms["measure"]) == (0, True)
    assert first.dial_next == Target(URL("nats", host="h:1"), explicit=True)
    [terms] = session(second).called("join")
    assert json.loads(terms["greeting"][5:])["route_pool_idx"] == 1
    third = server.info(server.dialled())
    [terms] = session(third).called("join")
    assert (terms["pool_index"], terms["measure"], third.dial_next) == (2, False, None)


def test_a_connection_for_an_account() -> None:
    server = Server()
    route = server.info(server.connect(server.accepted()), route_account="S")
    [terms] = session(route).called("join")
    assert (terms["account"], terms["greeting"], terms["measure"]) == (b"S", b"", False)
    assert server.log.of(route)[-1] == 'Registering remote route "R" for account "S"'
    dialled = server.info(server.dialled(account="S"), server_id="Q")
    [terms] = session(dialled).called("join")
    assert (terms["account"], terms["measure"]) == (b"S", False)
    assert json.loads(terms["greeting"][5:])["route_account"] == "S"
    assert dialled.peer
    assert dialled.peer.route_account == "S"


def test_without_a_pool() -> None:
    server = Server(pool_size=-1, accounts=(), compression=Compression("off"))
    route = server.info(server.dialled())
    [terms] = session(route).called("join")
    assert (terms["pool_index"], terms["pool_size"], terms["greeting"]) == (-1, 1, b"")
    assert not terms["measure"]


def test_headers_need_both_sides() -> None:
    server = Server()
    [terms] = session(server.info(server.accepted(), headers=False)).called("join")
    assert not terms["headers"]
    server.opts.no_header_support = True
    [terms] = session(server.info(server.accepted(), server_id="Q")).called("join")
    assert not terms["headers"]


@pytest.mark.parametrize(
    ("fields", "reason", "error", "logged"),
    [
        ({"server_id": "ME"}, ClosedState.DUPLICATE_ROUTE, None, []),
        ({"cluster": "D"}, ClosedState.CLUSTER_NAME_CONFLICT, None, []),
        (
            {"server_name": "me"},
            ClosedState.DUPLICATE_SERVER_NAME,
            None,
            ['Remote server has a duplicate name: "me"'],
        ),
        (
            {"route_pool_idx": 7},
            ClosedState.PROTOCOL_VIOLATION,
            "Invalid route pool index: 7 - pool size is 3",
            ["Invalid route pool index: 7 - pool size is 3", 'Detected duplicate remote route "R"'],
        ),
        (
            {"route_account": "NONE"},
            ClosedState.MISSING_ACCOUNT,
            'Unable to lookup account "NONE": account missing',
            ['Unable to lookup account "NONE": account missing', 'Detected duplicate remote route "R"'],
        ),
        (
            {"route_account": "A"},
            ClosedState.PROTOCOL_VIOLATION,
            'No route for account "A"',
            ['No route for account "A"', 'Detected duplicate remote route "R"'],
        ),
        (
            {"port": "x"},
            ClosedState.PROTOCOL_VIOLATION,
            None,
            ["json: cannot unmarshal string into Go struct field Info.port of type int"],
        ),
    ],
)
def test_refused_infos(
    fields: dict[str, object], reason: ClosedState, error: str | None, logged: list[str]
) -> None:
    server = Server()
    route = server.info(server.accepted(), **fields)
    assert closed(route) == [(reason, error)]
    assert not session(route).called("join")
    assert [line for line in server.log.of(route) if "->>" not in line] == logged
    assert len(server.routes) == 0


def test_a_peer_that_was_dialled_may_have_this_servers_name() -> None:
    server = Server()
    assert session(server.info(server.dialled(), server_name="me")).called("join")


def test_a_duplicate_is_closed() -> None:
    server = Server()
    server.info(server.accepted())
    route = server.info(server.accepted())
    assert closed(route) == [(ClosedState.DUPLICATE_ROUTE, None)]
    assert server.log.of(route) == ['Detected duplicate remote route "R"']
    for _ in range(2):
        server.info(server.dialled())
    route = server.info(server.dialled())
    assert closed(route) == [(ClosedState.DUPLICATE_ROUTE, None)]
    assert server.log.of(route)[0] == 'Route pool size reached, closing extra connection to "R"'


def test_later_infos_go_to_the_cluster() -> None:
    server = Server()
    route = server.info(server.info(server.accepted()), server_id="Q")
    assert session(route).called("resume") == [None]
    assert server.events[-1] == ("informed", "Q")


def test_nothing_is_negotiated_by_default() -> None:
    # both servers accept compression, and none asks for it
    server = Server()
    for route in server.info(server.accepted(), compression="accept"), server.info(server.dialled()):
        assert [name for name, _ in session(route).calls] == ["join"]
    assert [route.compression for route in server.routes] == ["off", "not supported"]
    [terms] = session(route).called("join")
    assert json.loads(terms["greeting"][5:])["compression"] == "not supported"


@pytest.mark.parametrize("mode", ["off", "not supported"])
def test_servers_without_compression(mode: str) -> None:
    server = Server(compression=Compression(mode))
    routes = [server.info(server.accepted(), compression=theirs) for theirs in ("", "s2_fast", "x")]
    assert [route.compression for route in routes[1:]] == [mode, mode]
    assert routes[0].compression == "not supported"
    assert not any(session(route).called("compress") for route in routes)


@pytest.mark.parametrize("account", ["", "S"])
def test_compression_is_agreed_on_before_a_route_that_was_dialled_joins(account: str) -> None:
    server = Server(compression=Compression("s2_better"))
    route = server.info(server.dialled(account=account, gossip_mode=1), compression="accept")
    [terms] = session(route).called("compress")
    greeting = json.loads(terms.pop("greeting")[5:])
    assert terms == {"solicited": True, "uncompressed": False}
    assert (greeting["compression"], greeting.get("route_account", "")) == ("s2_better", account)
    assert not {"route_pool_idx", "gossip_mode"} & greeting.keys()
    assert [name for name, _ in session(route).calls] == ["compress"]
    assert len(server.routes) == 0
    server.info(route, compression="s2_better")
    [terms] = session(route).called("join")
    third = json.loads(terms["greeting"][5:])
    assert (third["compression"], third["gossip_mode"]) == ("s2_better", 1)
    assert third.get("route_account", "") == account
    assert route.compression == "s2_better"


def test_compression_is_agreed_on_before_an_accepted_route_joins() -> None:
    server = Server(compression=Compression("accept"))
    route = server.info(server.accepted(), compression="s2_auto")
    [terms] = session(route).called("compress")
    assert json.loads(terms["greeting"][5:])["compression"] == "s2_fast"
    assert not terms["solicited"]
    # the mode of the next INFO is not looked at
    server.info(route, compression="x", route_pool_idx=2)
    [terms] = session(route).called("join")
    assert (terms["greeting"], terms["pool_index"]) == (b"", 2)
    assert len(session(route).called("compress")) == 1


def test_the_level_is_that_of_the_handshakes_time() -> None:
    server = Server(compression=Compression("s2_auto", (1e3, 2e3, 3e3)))
    route = server.info(server.accepted(), compression="s2_fast")
    [terms] = session(route).called("compress")
    assert (terms["uncompressed"], route.compression) == (True, "s2_uncompressed")
    assert json.loads(terms["greeting"][5:])["compression"] == "s2_auto"


def test_an_unknown_mode_is_refused() -> None:
    server = Server()
    route = server.info(server.accepted(), compression="s2_x")
    error = 'unsupported route compression mode "s2_x"'
    assert closed(route) == [(ClosedState.PROTOCOL_VIOLATION, error)]
    assert server.log.of(route)[0] == error
    assert not session(route).called("join")
