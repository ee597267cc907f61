"""Who is told of a new server, and which servers that others tell of are dialled."""

from __future__ import annotations

import pytest

from gnats.cluster.gossip import forward_new_route, has_this_route_configured, implicit_targets
from gnats.cluster.route import Route
from gnats.cluster.routes import Routes
from gnats.go.url import URL, parse_url
from gnats.options.values.cluster import ClusterOptions

from .fakes import info, route, session

pytestmark = pytest.mark.timeout(60)


def table(*routes: Route) -> Routes:
    made = Routes(3, ("S",))
    for each in routes:
        made.add(each, info(each.remote_id))
    return made


def test_one_connection_of_each_other_server_is_told() -> None:
    a, again, b, new = route("A", dialled=True), route("A", dialled=True), route("B"), route("N")
    news = info("N", nonce="x")
    forward_new_route(table(a, again, b, new), new, news, dialled=False)
    assert [len(session(each).sent) for each in (a, again, b, new)] == [1, 0, 1, 0]
    [told] = session(b).sent
    assert (told["server_id"], told["gossip_mode"]) == ("N", 1)
    assert "nonce" not in told


@pytest.mark.parametrize(
    ("dialled", "explicit", "told_explicit", "mode"),
    [
        (True, True, False, 2),
        (False, False, True, 2),
        (False, False, False, 1),
    ],
)
def test_modes(dialled: bool, explicit: bool, told_explicit: bool, mode: int) -> None:
    told = route("A", dialled=told_explicit, explicit=told_explicit)
    new = route("N", dialled=dialled, explicit=explicit)
    forward_new_route(table(told, new), new, info("N"), dialled=dialled)
    assert [each.get("gossip_mode", 0) for each in session(told).sent] == [mode]


@pytest.mark.parametrize(
    ("gossip_mode", "news_mode", "told"),
    [(0, 0, []), (1, 0, []), (2, 0, [0]), (2, 1, [])],
)
def test_a_connection_made_because_of_gossip_tells_nobody(
    gossip_mode: int, news_mode: int, told: list[int]
) -> None:
    a, new = route("A"), route("N", dialled=True)
    new.gossip_mode = gossip_mode
    forward_new_route(table(a, new), new, info("N", gossip_mode=news_mode), dialled=True)
    assert [each.get("gossip_mode", 0) for each in session(a).sent] == told


def test_of_an_accounts_connection_that_accounts_connections_are_told() -> None:
    a, own, b, new = route("A"), route("A", account="S"), route("B"), route("N", account="S")
    routes = table(a, own, b)
    old = route("O")
    routes.add(old, info("O", route_pool_size=0))
    routes.add(new, info("N"))
    news = info("N", route_account="S")
    forward_new_route(routes, new, news, dialled=False)
    assert [len(session(each).sent) for each in (a, own, b, old, new)] == [0, 1, 1, 0, 0]
    assert session(b).sent[0]["route_account"] == "S"


CLUSTER = ClusterOptions(port=1, pool_size=3, accounts=("S",), username="u", password="p")


def test_a_server_that_another_one_tells_of_is_dialled() -> None:
    news = info("N", ip="nats-route://1.2.3.4:5/", gossip_mode=2)
    [target] = implicit_targets(news, "ME", table(), CLUSTER, no_pool=False)
    assert target.url == URL("nats-route", host="1.2.3.4:5", path="/")
    assert (target.explicit, target.account, target.gossip_mode) == (False, "", 2)
    news = info("N", ip="nats-route://1.2.3.4:5/", auth_required=True, route_account="S")
    [target] = implicit_targets(news, "ME", table(), CLUSTER, no_pool=False)
    assert (target.account, target.url.user, target.url.password) == ("S", "u", "p")


def test_those_that_are_not_dialled() -> None:
    ip = "nats-route://1.2.3.4:5/"
    assert not implicit_targets(info("ME", ip=ip), "ME", table(), CLUSTER, no_pool=False)
    connected = table(route("N"), route("N", account="S"))
    assert not implicit_targets(info("N", ip=ip), "ME", connected, CLUSTER, no_pool=False)
    news = info("N", ip=ip, route_account="S")
    assert not implicit_targets(news, "ME", connected, CLUSTER, no_pool=False)
    assert implicit_targets(news, "ME", table(route("N")), CLUSTER, no_pool=False)
    alone = ClusterOptions(port=1, pool_size=-1)
    assert not implicit_targets(news, "ME", table(), alone, no_pool=False)
    listed = ClusterOptions(port=1, pool_size=3, routes=(parse_url("nats://1.2.3.4:6222"),))
    assert not implicit_targets(info("N", ip=ip), "ME", table(), listed, no_pool=False)
    with pytest.raises(ValueError, match="invalid port"):
        implicit_targets(info("N", ip="x://a:b"), "ME", table(), CLUSTER, no_pool=False)


def test_a_peer_without_pools_tells_nothing_of_accounts_connections() -> None:
    news = info("N", ip="nats-route://1.2.3.4:5/")
    targets = implicit_targets(news, "ME", table(), CLUSTER, no_pool=True)
    assert [target.account for target in targets] == ["", "S"]


@pytest.mark.parametrize(
    ("url", "listed"),
    [
        ("nats://127.0.0.1:6222", True),
        ("nats://u:p@HOST:6222", True),
        ("nats://host:6223", False),
        ("nats://other:6222", False),
    ],
)
def test_addresses_of_the_configuration(url: str, listed: bool) -> None:
    cluster = ClusterOptions(routes=(parse_url(url),))
    assert has_this_route_configured(info("N", ip="x://host:1/"), cluster) is listed
