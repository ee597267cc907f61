"""A reload of the cluster's options: what happens to routes, and what peers and clients are told."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import bcrypt
import pytest

from gnats.cluster import pinning
from gnats.cluster import reload as module
from gnats.cluster.reload import ClusterReload
from gnats.cluster.route import Route, Target
from gnats.connection.closed_state import ClosedState
from gnats.errors import OptionError
from gnats.go.url import URL
from gnats.options.reloadable import diff_options
from gnats.options.values.auth import SubjectPermission
from gnats.options.values.cluster import Compression, RoutePermissions

from .fakes import info, session
from .test_cluster import EXPLICIT, URLS, Harness
from .test_cluster import fakes as fakes

pytestmark = pytest.mark.timeout(60)

G_INDEX = 2
"""The place of $G in a pool of three."""


def begin(harness: Harness, **changes: Any) -> ClusterReload:
    """Reload up to the step that waits; `changes` are options of the cluster, `options` others."""
    old = harness.opts
    options = changes.pop("options", {})
    cluster = replace(old.cluster, **changes)
    new = replace(old, cluster=cluster, **options).baseline()
    notices = diff_options(old, new)
    reload = harness.cluster.reload(old, new)
    reload.check()
    harness.opts = new
    for field in notices:
        reload.apply(field)
    return reload


def reload(harness: Harness, **changes: Any) -> None:
    asyncio.run(begin(harness, **changes).finish())


async def reload_until_closed(harness: Harness, *routes: Route, **changes: Any) -> None:
    """Reload; the routes, which the reload closes, end while it waits for that."""
    task = asyncio.ensure_future(begin(harness, **changes).finish())
    await asyncio.sleep(0)
    for route in routes:
        assert closed(route) == REMOVED
        harness.end(route, ClosedState.ROUTE_REMOVED)
    await task


def pool(harness: Harness, remote: str = "R", size: int = 3) -> list[Route]:
    return [harness.connect(remote, route_pool_idx=n, route_pool_size=size) for n in range(size)]


def closed(route: Route) -> list[Any]:
    return session(route).called("close")


REMOVED = [(ClosedState.ROUTE_REMOVED, None)]


def test_new_routes_are_dialled_and_removed_ones_closed() -> None:
    harness = Harness(routes=(EXPLICIT.url,))
    removed = harness.connect(target=EXPLICIT)
    harness.hear(removed, "R")
    stays = harness.connect("Q")
    new = URL("nats", host="new:1")
    reload(harness, routes=(new,))
    assert (closed(removed), closed(stays)) == (REMOVED, [])
    assert list(harness.cluster.routes) == [stays]
    assert "Removed route nats://h:1" in harness.log.lines
    assert harness.dialled.targets == [Target(new, True, account) for account in ("", "$SYS")]
    harness.end(removed, ClosedState.ROUTE_REMOVED)
    assert not harness.dialled.again


def test_the_order_of_routes_does_not_matter() -> None:
    urls = URL("nats", host="a:1"), URL("nats", host="b:1")
    harness = Harness(routes=urls)
    reload(harness, routes=urls[::-1])
    assert not harness.dialled.targets


def test_a_connection_that_is_not_registered_yet_is_removed_too() -> None:
    harness = Harness(routes=(EXPLICIT.url,))
    harness.cluster._create(_socket(), "127.0.0.1", 5, EXPLICIT)
    [route] = harness.cluster.open.values()
    reload(harness, routes=())
    assert closed(route) == REMOVED


def _socket() -> Any:
    import socket

    ours, theirs = socket.socketpair()
    theirs.close()
    return ours


@pytest.mark.parametrize("hashed", [False, True])
def test_accepted_routes_are_checked_again(hashed: bool) -> None:
    harness = Harness()
    accepted, dialled = harness.connect(), harness.connect("Q", target=EXPLICIT)
    trusted = harness.connect("P")
    trusted.connect.user, trusted.connect.password = "u", "secret"
    password = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode() if hashed else "secret"
    reload(harness, username="u", password=password)
    assert closed(accepted) == [(ClosedState.AUTHENTICATION_VIOLATION, "Authorization Violation")]
    assert (closed(dialled), closed(trusted)) == ([], [])
    assert "authentication error" in harness.log.of(accepted)
    assert accepted.no_reconnect
    reload(harness, username="v", password=password)
    assert 'authentication error - User "u"' in harness.log.of(trusted)


def test_permissions_are_in_force_before_peers_are_told() -> None:
    harness = Harness()
    routes = [harness.connect(), harness.connect(route_account="$SYS")]
    exports = SubjectPermission(allow=("a",))
    for permissions, told in (RoutePermissions(exports=exports), {"allow": ["a"]}), (None, None):
        for route in routes:
            session(route).calls.clear()
        reload(harness, permissions=permissions)
        for route in routes:
            assert [name for name, _ in session(route).calls] == ["set_permissions", "send"]
            [given] = session(route).called("set_permissions")
            assert (given is None) == (permissions is None)
            [line] = session(route).sent
            assert (line["server_id"], line.get("export")) == ("ME", told)
            assert "nonce" not in line


def test_a_peers_new_exports_and_urls() -> None:
    harness = Harness()
    route = harness.connect(connect_urls=URLS)
    harness.hear(route, "R", connect_urls=URLS)
    harness.hear(route, "R", connect_urls=URLS, **{"import": {"allow": ["a"]}})
    assert not session(route).called("announce_again")
    for export in {"allow": ["a"]}, None:
        members = {"export": export} if export else {}
        harness.hear(route, "R", connect_urls=URLS, **members)
    assert len(session(route).called("announce_again")) == 2
    assert route.peer
    assert route.peer.sent.get("export") is None
    assert (harness.told, harness.cluster.urls.shown) == (1, ("me:1", "a:1"))
    harness.hear(route, "R", connect_urls=["b:1"])
    assert (harness.told, harness.cluster.urls.shown) == (2, ("me:1", "b:1"))
    harness.hear(route, "R")
    assert (harness.told, harness.cluster.urls.shown) == (3, ("me:1",))
    harness.end(route)
    assert harness.told == 3


def test_no_advertise() -> None:
    harness = Harness()
    route = harness.connect(connect_urls=URLS)
    reload(harness, no_advertise=True)
    assert (harness.told, harness.cluster.urls.shown) == (2, ())
    assert "connect_urls" not in session(route).sent[-1]
    reload(harness, no_advertise=False)
    assert (harness.told, harness.cluster.urls.shown) == (3, ("me:1", "a:1"))
    assert session(route).sent[-1]["connect_urls"] == ["me:1"]


def test_advertise() -> None:
    harness = Harness()
    route = harness.connect()
    reload(harness, advertise="h:5")
    [line] = session(route).sent
    assert (line["host"], line["port"], line["ip"]) == ("h", 5, "nats-route://h:5/")


def test_pings() -> None:
    harness = Harness()
    route = harness.connect()
    reload(harness, ping_interval=3.0, ping_max=7)
    reload(harness, options={"ping_interval": 90.0}, ping_interval=0.0)
    reload(harness, options={"ping_interval": 91.0})
    assert session(route).called("set_pings") == [
        {"ping_interval": 3.0, "ping_max": 7},
        {"ping_interval": 30.0, "ping_max": 7},
    ]


def test_a_new_name_keeps_the_routes() -> None:
    harness = Harness()
    route = harness.connect()
    names: list[tuple[str, bool]] = []
    rename: Any = lambda name, generated: names.append((name, generated))  # noqa: E731
    harness.cluster._hooks = replace(harness.cluster._hooks, renamed=rename)
    reload(harness, name="D")
    assert (names, closed(route)) == ([("D", False)], [])


# -- pools ---------------------------------------------------------------------------------------------------


def test_a_new_pool_size_closes_all_pooled_connections() -> None:
    harness = Harness(routes=(EXPLICIT.url,))
    pooled = pool(harness)
    pinned = harness.connect(route_account="$SYS")
    harness.cluster._create(_socket(), "127.0.0.1", 5, EXPLICIT)  # it has been told the old size
    [*_, waiting] = harness.cluster.open.values()
    dialled = harness.connect("Q", target=EXPLICIT)
    reload(harness, pool_size=5)
    for route in [*pooled, waiting, dialled]:
        assert closed(route) == REMOVED
    assert not closed(pinned)
    assert list(harness.cluster.routes) == [pinned]
    assert harness.cluster.routes.pool_size == 5
    assert harness.dialled.targets == [EXPLICIT]
    harness.end(dialled, ClosedState.ROUTE_REMOVED)
    assert harness.dialled.again == [dialled]
    assert [route.index for route in pool(harness, size=5)] == [0, 1, 2, 3, 4]


def test_without_pools_and_back() -> None:
    harness = Harness(routes=(EXPLICIT.url,))
    pooled, pinned = harness.connect(), harness.connect(route_account="$SYS")
    asyncio.run(reload_until_closed(harness, pinned, pool_size=-1, accounts=()))
    assert closed(pooled) == REMOVED
    assert harness.cluster.routes.pinned == ()
    alone = harness.connect(route_pool_size=3)
    assert alone.no_pool
    harness.dialled.targets.clear()
    reload(harness, pool_size=2)
    assert closed(alone) == REMOVED
    assert not session(alone).sent  # a peer without a pool has nothing to forget
    assert [target.account for target in harness.dialled.targets if target.explicit] == ["", "$SYS"]
    assert harness.cluster.routes.pinned == ("$SYS",)


# -- accounts with connections of their own ------------------------------------------------------------------


def request(route: Route) -> dict[str, Any]:
    [line] = session(route).sent
    return line


def answer(harness: Harness, route: Route, members: dict[str, Any]) -> None:
    members.pop("route_account")
    harness.cluster._handshake.process_info(route, json.dumps(members).encode())


def test_an_account_is_pinned_in_two_steps() -> None:
    harness = Harness(routes=(EXPLICIT.url,))
    ours, others = pool(harness), pool(harness, "Q", 4)
    alone = harness.connect("P", route_pool_size=0)
    for route in [*ours, *others, alone]:
        session(route).calls.clear()  # gossip
    waiting = begin(harness, accounts=("$G",))

    async def run() -> None:
        task = asyncio.ensure_future(waiting.finish())
        await asyncio.sleep(0)
        for route in ours + others:
            assert session(route).called("drop_account") == [b"$G"]
            assert bool(session(route).sent) == (route.index == G_INDEX)
        assert not session(alone).sent
        assert not session(alone).called("drop_account")
        line = request(ours[G_INDEX])
        assert {name: value for name, value in line.items() if value} == {
            "route_pool_size": 3,
            "route_account": "$G",
            "route_acc_add_reqid": line["route_acc_add_reqid"],
        }
        refused = harness.connect("N")
        assert closed(refused) == [(ClosedState.DUPLICATE_ROUTE, None)]
        answer(harness, ours[G_INDEX], dict(line))
        answer(harness, ours[G_INDEX], line | {"route_acc_add_reqid": "old"})
        await asyncio.sleep(0)
        assert not harness.dialled.targets
        answer(harness, others[G_INDEX], line)
        await task

    asyncio.run(run())
    assert harness.dialled.targets == [replace(EXPLICIT, account="$G")]
    assert len(harness.cluster.routes) == 8
    assert not harness.connect("N").closing
    pinned = harness.connect(route_account="$G")  # the peer may have told of interest before it knew
    assert list(harness.cluster.routes.of_account("$G")) == [pinned]
    harness.end(pinned)
    harness.connect(route_account="$G")
    assert session(ours[0]).called("drop_account") == [b"$G"] * 2
    assert session(others[0]).called("drop_account") == [b"$G"]


def test_a_peer_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinning, "ANSWER_TIMEOUT", 0.0)
    harness = Harness()
    route = harness.connect(route_pool_idx=G_INDEX)
    reload(harness, accounts=("$G",))
    warning = "Timed out waiting for confirmation from all routes regarding per-account routes changes"
    assert harness.log.lines[-1] == warning
    answer(harness, route, request(route))
    assert not closed(harness.connect(route_account="$G"))


def test_the_server_stops_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinning, "ANSWER_TIMEOUT", 0.0)
    harness = Harness(routes=(EXPLICIT.url,))
    harness.connect(route_pool_idx=G_INDEX)
    waiting = begin(harness, accounts=("$G",))
    harness.cluster.stop_accepting()
    asyncio.run(waiting.finish())
    assert not harness.dialled.targets


def test_an_account_returns_to_the_pool_when_its_own_connections_are_closed() -> None:
    harness = Harness(accounts=("$G",))
    ours, theirs = harness.connect(route_account="$G"), harness.connect("Q", route_account="$G")
    system, pooled = harness.connect(route_account="$SYS"), harness.connect()
    waiting = begin(harness, accounts=())

    async def run() -> None:
        task = asyncio.ensure_future(waiting.finish())
        await asyncio.sleep(0)
        assert (closed(ours), closed(theirs)) == (REMOVED, REMOVED)
        assert (closed(system), closed(pooled)) == ([], [])
        harness.end(ours, ClosedState.ROUTE_REMOVED)
        assert closed(harness.connect(route_account="$G")) == [(ClosedState.DUPLICATE_ROUTE, None)]
        await asyncio.sleep(0)
        assert not session(pooled).called("carry")
        harness.end(theirs, ClosedState.ROUTE_REMOVED)
        await task

    asyncio.run(run())
    assert session(pooled).called("carry") == [b"$G"]
    assert not harness.dialled.again
    assert closed(harness.connect("Q", route_account="$G"))[0][1] == 'No route for account "$G"'


def test_connections_of_a_removed_account_whose_peers_do_not_read_are_aborted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CLOSE_TIMEOUT", 0.0)
    harness = Harness(accounts=("$G",))
    pinned, pooled = harness.connect(route_account="$G"), harness.connect()
    reload(harness, accounts=())
    assert [name for name, _ in session(pinned).calls[-2:]] == ["close", "abort"]
    assert session(pooled).called("carry") == [b"$G"]
    assert not harness.cluster.watchers


def test_an_unknown_account_cannot_be_pinned() -> None:
    harness = Harness()
    with pytest.raises(OptionError, match=r'unable to add account "X" to .*: account missing'):
        reload(harness, accounts=("X",))
    assert "X" not in harness.cluster.routes.pinned


def test_a_peer_pins_an_account() -> None:
    harness = Harness()
    pooled, other = pool(harness), harness.connect("Q")
    members = {"route_pool_size": 3, "route_account": "$G", "route_acc_add_reqid": "id"}
    harness.cluster._handshake.process_info(pooled[G_INDEX], json.dumps(members).encode())
    for route in pooled:
        assert session(route).called("drop_account") == [b"$G"]
    assert not session(other).called("drop_account")
    line = request(pooled[G_INDEX])
    assert {name: value for name, value in line.items() if value} == {
        "route_pool_size": 3,
        "route_acc_add_reqid": "id",
    }
    assert session(pooled[G_INDEX]).calls[-1] == ("resume", None)
    assert not closed(harness.connect(route_account="$G"))


def test_a_peer_pins_an_account_that_this_server_has_not() -> None:
    harness = Harness()
    route = harness.connect()
    members = {"route_pool_size": 3, "route_account": "X", "route_acc_add_reqid": "id"}
    harness.cluster._handshake.process_info(route, json.dumps(members).encode())
    assert harness.log.lines[-1] == 'Error looking up account "X": account missing'
    assert (session(route).sent, closed(route)) == ([], [])


# -- compression ---------------------------------------------------------------------------------------------

AUTO = Compression("s2_auto", (1e3, 2e3, 3e3))


@pytest.mark.parametrize(
    ("mode", "new", "after"),
    [
        # a route's mode, the one that is configured anew, the one then; "" if it is closed
        ("s2_fast", Compression("s2_best"), "s2_best"),
        ("s2_best", AUTO, "s2_uncompressed"),
        ("s2_uncompressed", Compression("s2_fast"), "s2_fast"),
        ("s2_fast", Compression("s2_fast"), "s2_fast"),
        ("s2_fast", Compression("off"), ""),
        ("s2_fast", Compression("accept"), ""),
        ("s2_fast", Compression("not supported"), ""),
        ("off", Compression("s2_fast"), ""),
        ("off", Compression("accept"), ""),
        ("off", Compression("off"), "off"),
        ("not supported", Compression("s2_fast"), "not supported"),
    ],
)
def test_compression_changes_in_place_or_the_peer_is_dialled_again(
    mode: str, new: Compression, after: str
) -> None:
    harness = Harness(compression=Compression("s2_better"))
    route = harness.connect()
    route.compression = mode
    reload(harness, compression=new)
    if after:
        assert (route.compression, closed(route)) == (after, [])
    else:
        assert closed(route) == [(ClosedState.CLIENT_CLOSED, None)]
    levels = session(route).called("set_uncompressed")
    assert levels == ([after == "s2_uncompressed"] if after not in ("", mode) else [])


# -- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"host": "1.2.3.4"}, "host: old=127.0.0.1, new=1.2.3.4"),
        ({"port": 6223}, "port: old=6222, new=6223"),
    ],
)
def test_refused(changes: dict[str, Any], error: str) -> None:
    old = Harness().opts
    new = replace(old, cluster=replace(old.cluster, **changes))
    with pytest.raises(OptionError) as caught:
        diff_options(old, new)
    assert str(caught.value) == f"config reload not supported for cluster {error}"


def test_notices() -> None:
    old = Harness().opts
    new = replace(old, cluster=replace(old.cluster, routes=(EXPLICIT.url,)))
    assert diff_options(old, new) == {"Routes": "Reloaded: cluster routes"}
    new.cluster = replace(new.cluster, pool_size=2)
    assert list(diff_options(old, new).values()) == ["Reloaded: cluster", "Reloaded: cluster routes"]
    assert info().server_id == "R"
