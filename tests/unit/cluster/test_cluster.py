"""The parts of a cluster together: closed routes, reconnects, URLs for clients, later INFO."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any

import pytest

from gnats.accounts.accounts import Accounts
from gnats.cluster import cluster as module
from gnats.cluster import connections, link_health
from gnats.cluster.cluster import Cluster, Hooks
from gnats.cluster.route import Route, Target
from gnats.connection.closed_state import ClosedState
from gnats.core.runtime.state import ServerState
from gnats.core.tls import tlstransport
from gnats.go.url import URL
from gnats.nkeys.identity import Identity
from gnats.options.options import Options
from gnats.options.values.cluster import ClusterOptions, Compression

from .fakes import Log, Session, info, session

pytestmark = pytest.mark.timeout(60)

URLS = ["a:1"]


class Dialled:
    """Takes the place of the Solicitor: notes what it would dial."""

    def __init__(self, log: object, **parts: object) -> None:
        self.targets: list[Target] = []
        self.again: list[Route] = []

    def dial(self, target: Target) -> None:
        self.targets.append(target)

    def dial_again(self, route: Route) -> None:
        self.again.append(route)

    def solicit(self, urls: Iterable[URL], accounts: Iterable[str]) -> None:
        self.targets += [Target(url, explicit=True, account=each) for each in accounts for url in urls]


class Harness:
    """A cluster of a server "ME" without sockets; its routes come from connect()."""

    def __init__(self, **cluster: Any) -> None:
        values: dict[str, Any] = {"name": "C", "port": 6222}
        self.opts = Options(cluster=ClusterOptions(**values | cluster)).baseline()
        self.log = Log()
        self.told = 0
        self.gone = 0
        hooks = Hooks(
            renamed=lambda name, generated: None,
            urls_changed=self._tell,
            next_cid=lambda: 0,
            gone=self._gone,
        )
        parts: list[Any] = [
            Identity("ME", "me"),
            Accounts(self.opts),
            ServerState(),
            self.log,
            hooks,
            Session,
        ]
        self.cluster = Cluster(*parts, options=lambda: self.opts, spawn=self._spawn)
        self.cluster.urls.own = ("me:1",)
        self.cluster._pollers = iter([None] * 99)  # type: ignore[assignment]
        assert isinstance(self.cluster._solicitor, Dialled)
        self.dialled = self.cluster._solicitor

    def _tell(self) -> None:
        self.told += 1

    def _gone(self) -> None:
        self.gone += 1

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        raise AssertionError("nothing is to be spawned")

    def connect(self, remote: str = "R", target: Target | None = None, **fields: object) -> Route:
        """Let a peer connect, or dial it, and shake hands."""
        ours, theirs = socket.socketpair()
        theirs.close()
        before = set(self.cluster.open)
        self.cluster._create(ours, "127.0.0.1", 5, target)
        [cid] = set(self.cluster.open) - before
        route = self.cluster.open[cid]
        if target is None:
            self.cluster._handshake.process_connect(route, b'{"name":"%s","cluster":"C"}' % remote.encode())
        self.hear(route, remote, **fields)
        return route

    def hear(self, route: Route, remote: str, **fields: object) -> None:
        self.cluster._handshake.process_info(route, json.dumps(info(remote, **fields).sent).encode())

    def end(self, route: Route, reason: ClosedState = ClosedState.CLIENT_CLOSED) -> None:
        self.cluster._on_closed(session(route), reason, 0, None)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "Solicitor", Dialled)
    monkeypatch.setattr(connections, "Connection", Session)
    yield


EXPLICIT = Target(URL("nats", host="h:1"), explicit=True)
IMPLICIT = Target(URL("nats", host="h:1"))


def test_a_server_that_dials_sends_connect_first() -> None:
    harness = Harness(compression=Compression("off"))
    pooled = harness.connect(target=EXPLICIT)
    [(lines, expect_connect, _)] = session(pooled).called("start")
    assert (lines.count(b"\r\n"), expect_connect) == (1, False)
    account = harness.connect(target=Target(EXPLICIT.url, account="$SYS"))
    [(lines, _, _)] = session(account).called("start")
    connect, account_info = lines.split(b"\r\n")[:2]
    assert connect.startswith(b"CONNECT ")
    assert json.loads(account_info[5:])["route_account"] == "$SYS"
    assert not session(account).options["negotiates"]


@pytest.mark.parametrize("mode", ["accept", "s2_fast"])
def test_before_the_compression_is_agreed_on_it_sends_nothing_else(mode: str) -> None:
    harness = Harness(compression=Compression(mode))
    for account in ("", "$SYS"):
        route = harness.connect(target=Target(EXPLICIT.url, account=account))
        [(lines, _, _)] = session(route).called("start")
        assert lines.count(b"\r\n") == 1
        assert session(route).options["negotiates"]


@pytest.mark.parametrize(("username", "timeout"), [("", 0.0), ("u", 2.0)])
def test_an_accepted_one_gets_info_at_once(username: str, timeout: float) -> None:
    harness = Harness(username=username, password=username)
    ours, theirs = socket.socketpair()
    theirs.close()
    harness.cluster._create(ours, "::ffff:1.2.3.4", 5, None)
    [route] = harness.cluster.open.values()
    [(line, expect_connect, auth_timeout)] = session(route).called("start")
    assert line.startswith(b"INFO ")
    assert (expect_connect, auth_timeout, route.host) == (True, timeout, "1.2.3.4")
    assert harness.cluster.connected


def test_limits_of_routes() -> None:
    options = session(Harness().connect()).options
    assert (options["ping_interval"], options["ping_max"], options["retries"]) == (30.0, 2, True)
    assert options["max_pending"] == 4 << 26
    harness = Harness(ping_interval=1.0, ping_max=5, write_deadline=3.0, write_timeout="close")
    options = session(harness.connect()).options
    assert (options["ping_interval"], options["ping_max"], options["retries"]) == (1.0, 5, False)
    assert options["write_deadline"] == 3.0


def test_the_next_connection_of_a_pool_is_dialled_when_the_ping_is_answered() -> None:
    harness = Harness()
    route = harness.connect(target=EXPLICIT)
    assert not harness.dialled.targets
    for _ in range(2):
        harness.cluster._on_pong(session(route), 0, 0, None)  # type: ignore[arg-type]
    assert harness.dialled.targets == [EXPLICIT]


def test_clients_are_told_of_a_remotes_urls_once() -> None:
    harness = Harness()
    first, second = harness.connect(connect_urls=URLS), harness.connect(connect_urls=URLS, route_pool_idx=1)
    assert (harness.cluster.urls.shown, harness.told) == (("me:1", "a:1"), 1)
    harness.connect(connect_urls=URLS, route_account="$SYS")
    harness.end(first)
    assert harness.told == 1
    harness.end(second)
    assert (harness.cluster.urls.shown, harness.told) == (("me:1",), 2)


def test_no_advertise() -> None:
    harness = Harness(no_advertise=True)
    harness.end(harness.connect(connect_urls=URLS))
    assert (harness.cluster.urls.shown, harness.told) == ((), 0)


def test_the_urls_of_a_server_in_lame_duck_mode_go_at_once() -> None:
    harness = Harness()
    route = harness.connect(connect_urls=URLS)
    other = harness.connect("Q", connect_urls=URLS)
    harness.hear(route, "R", ldm=True)
    assert harness.told == 1
    harness.end(route)
    assert (harness.cluster.urls.shown, harness.told) == (("me:1", "a:1"), 1)  # the other one has it, too
    harness.hear(other, "Q", ldm=True)
    assert harness.told == 2
    harness.cluster.lame_duck()
    assert [line["ldm"] for line in session(other).sent] == [True]
    assert harness.cluster.urls.shown == ()


def test_a_closed_route() -> None:
    harness = Harness()
    route = harness.connect()
    harness.end(route, ClosedState.STALE_CONNECTION)
    assert harness.log.of(route)[-1] == "Router connection closed: Stale Connection - Remote: r"
    assert (harness.gone, harness.cluster.stale, harness.cluster.slow) == (1, 1, 0)
    assert not harness.cluster.connected
    assert len(harness.cluster.routes) == 0
    assert harness.cluster.traffic()["out_bytes"] == 4
    assert not harness.dialled.again  # the peer has dialled it


@pytest.mark.parametrize("target", [EXPLICIT, IMPLICIT])
def test_a_route_that_was_dialled_is_dialled_again(target: Target) -> None:
    harness = Harness()
    route = harness.connect(target=target)
    harness.end(route)
    assert harness.dialled.again == [route]
    assert harness.log.lines[-1] == 'Attempting reconnect for solicited route "nats://h:1"'


def test_a_route_whose_duplicate_was_closed_is_dialled_again() -> None:
    harness = Harness()
    stays, goes = harness.connect(), harness.connect()
    harness.end(goes, ClosedState.DUPLICATE_ROUTE)
    assert not harness.dialled.again
    harness.end(stays)
    assert harness.dialled.again == [stays]


def test_a_route_to_itself_is_not_dialled_again() -> None:
    harness = Harness()
    route = harness.connect("ME", target=EXPLICIT)
    assert session(route).called("close") == [(ClosedState.DUPLICATE_ROUTE, None)]
    harness.end(route)
    assert not harness.dialled.again
    assert harness.log.lines[-1] == 'Detected route to self, ignoring "nats://h:1"'


def test_without_a_pool_one_connection_is_enough() -> None:
    harness = Harness(pool_size=-1)
    stays = harness.connect(route_pool_size=0)
    goes = harness.connect(target=EXPLICIT, route_pool_size=0)
    harness.end(goes)
    assert not harness.dialled.again
    assert (stays.solicited, stays.explicit, stays.url) == (True, True, EXPLICIT.url)
    harness.end(stays)
    assert harness.dialled.again == [stays]


def test_a_lost_peer_without_a_pool_is_dialled_with_one() -> None:
    harness = Harness()
    route = harness.connect(target=EXPLICIT, route_pool_size=0)
    harness.end(route)
    assert [target.account for target in harness.dialled.targets] == ["", "$SYS"]


def test_a_new_connection_takes_the_place_of_one_that_is_being_closed() -> None:
    harness = Harness()
    old = harness.connect(connect_urls=URLS)
    session(old).closed_reason = ClosedState.CLIENT_CLOSED
    new = harness.connect(connect_urls=["b:1"])
    assert list(harness.cluster.routes) == [new]
    harness.end(old)
    assert list(harness.cluster.routes) == [new]
    assert harness.cluster.urls.shown == ("me:1", "b:1")


def test_another_servers_info_is_dialled() -> None:
    harness = Harness()
    route = harness.connect()
    harness.hear(route, "Q", ip="nats-route://1.2.3.4:5/")
    assert [target.url.host for target in harness.dialled.targets] == ["1.2.3.4:5"]
    harness.hear(route, "P", ip="x://a:b")
    assert harness.log.lines[-1].startswith("Error parsing URL from INFO: ")
    harness.hear(route, "P", ip="nats-route://1.2.3.4:5/", route_acc_add_reqid="x")
    assert len(harness.dialled.targets) == 1
    assert len(session(route).called("resume")) == 3


def test_a_shutdown_closes_all_and_dials_nobody() -> None:
    harness = Harness()
    routes = [harness.connect(target=EXPLICIT), harness.connect("Q")]
    harness.cluster.stop_accepting()
    harness.cluster.close()
    for route in routes:
        assert session(route).called("close") == [(ClosedState.SERVER_SHUTDOWN, None)]
        harness.end(route, ClosedState.SERVER_SHUTDOWN)
    assert not harness.dialled.again
    ours, theirs = socket.socketpair()
    harness.cluster._create(ours, "127.0.0.1", 5, None)
    assert theirs.recv(1) == b""
    theirs.close()


def test_a_new_name_closes_the_routes_to_all_others() -> None:
    harness = Harness()
    kept, closed = harness.connect(), harness.connect("Q")
    account = harness.connect("Q", route_account="$SYS")
    harness.cluster.name_changed("R")
    assert not session(kept).called("close")
    for route in closed, account:
        assert session(route).called("close") == [(ClosedState.CLUSTER_NAME_CONFLICT, None)]


class TLS:
    """Records which connections are to be secured, and for which host."""

    insecure = True

    def secure(self, connection: Session, host: str = "") -> None:
        connection.calls.append(("secure", host))


def secured(*routes: URL) -> Harness:
    harness = Harness(routes=routes)
    harness.cluster.use_tls(TLS())  # type: ignore[arg-type]
    harness.cluster._tls_name.save(routes)
    return harness


def test_tls_is_put_before_a_connection_that_is_not_started() -> None:
    harness = secured()
    for target, host in (None, ""), (EXPLICIT, "h"):
        route = harness.connect("A" if target else "B", target)
        assert [name for name, _ in session(route).calls[:2]] == ["secure", "start"]
        assert session(route).called("secure") == [host]
    assert any("DO NOT USE IN PRODUCTION" in line for line in harness.log.lines)


def test_a_name_stands_for_addresses_until_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tlstransport, "host_was_wrong", lambda connection: True)
    harness = secured(EXPLICIT.url)
    told = Target(URL("nats", host="10.0.0.1:1"))
    hosts = []
    for reason in ClosedState.READ_ERROR, ClosedState.TLS_HANDSHAKE_ERROR, ClosedState.READ_ERROR:
        route = harness.connect("A", told)
        hosts += session(route).called("secure")
        harness.end(route, reason)
    assert hosts == ["h", "h", "10.0.0.1"]


def test_a_route_is_created_when_its_session_begins() -> None:
    harness = Harness()
    route = harness.connect(target=EXPLICIT)
    assert "Route connection created" not in harness.log.of(route)
    harness.cluster._on_begun(session(route), 0, 0, None)  # type: ignore[arg-type]
    assert harness.log.of(route)[-2:] == ["Route connect msg sent", "Route connection created"]


def missing(harness: Harness) -> list[str]:
    return [each.link.address for each in harness.cluster.health.configured().values() if each]


def test_a_route_is_missing_when_it_is_refused_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(routes=(EXPLICIT.url,))
    for count in range(2):
        assert len(missing(harness)) == 0, count
        ours, theirs = socket.socketpair()
        theirs.close()
        harness.cluster._create(ours, "127.0.0.1", 5, EXPLICIT)
        [route] = harness.cluster.open.values()
        harness.end(route, ClosedState.AUTHENTICATION_VIOLATION)
    assert missing(harness) == ["h:1"]
    harness.connect(target=EXPLICIT)
    harness.cluster.health.check()
    assert missing(harness) == ["h:1"]  # the peer may still refuse it
    monkeypatch.setattr(link_health, "SETTLED", 0)
    harness.cluster.health.check()
    assert missing(harness) == []


def test_a_route_is_missing_when_its_peer_refuses_it_after_it_has_joined() -> None:
    harness = Harness(routes=(EXPLICIT.url,))
    for count in range(2):
        assert len(missing(harness)) == 0, count
        route = harness.connect(target=EXPLICIT)
        harness.cluster._note_words(route.session, "'Authorization Violation'")  # type: ignore[arg-type]
        harness.end(route, ClosedState.PARSE_ERROR)
    [found] = filter(None, harness.cluster.health.configured().values())
    assert found.error == "the other server says 'Authorization Violation'"


def test_a_route_that_has_joined_and_ends_is_not_missing() -> None:
    harness = Harness(routes=(EXPLICIT.url,))
    for _ in range(3):
        harness.end(harness.connect(target=EXPLICIT), ClosedState.CLIENT_CLOSED)
    assert missing(harness) == []


def test_a_route_to_a_server_that_is_connected_anyway_is_not_missing() -> None:
    harness = Harness(routes=(EXPLICIT.url,), pool_size=1)
    harness.connect(route_pool_size=1, host="h", port=1, connect_urls=[])
    for _ in range(2):
        extra = harness.connect(target=EXPLICIT, route_pool_size=1)
        harness.end(extra, ClosedState.DUPLICATE_ROUTE)
        harness.cluster._attempt_failed(EXPLICIT, "timeout")
    assert missing(harness) == []


def test_a_route_to_itself_is_not_missing() -> None:
    harness = Harness(routes=(EXPLICIT.url,))
    for _ in range(2):
        harness.end(harness.connect("ME", target=EXPLICIT), ClosedState.DUPLICATE_ROUTE)
    assert missing(harness) == []
