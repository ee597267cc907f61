"""The table of routes: places of a pool, accounts' own connections, duplicates, removal."""

from __future__ import annotations

import pytest

from gnats.cluster.routes import Added, Duplicate, Refused, Removed, Routes

from .fakes import info, route

pytestmark = pytest.mark.timeout(60)


def table(pool_size: int = 3, accounts: tuple[str, ...] = ("S",)) -> Routes:
    return Routes(pool_size, accounts)


def test_a_pool_fills_from_its_first_place() -> None:
    routes = table()
    made = [route(dialled=True) for _ in range(4)]
    assert routes.add(made[0], info()) == Added(first=True, forward=False, full=False)
    assert routes.add(made[1], info()) == Added(first=False, forward=False, full=False)
    assert routes.add(made[2], info()) == Added(first=False, forward=False, full=True)
    assert routes.add(made[3], info()) == Duplicate(full=True)
    assert [each.index for each in made] == [0, 1, 2, -1]
    assert made[3].no_reconnect
    assert (len(routes), routes.num_remotes) == (3, 1)
    assert list(routes.one_of_each()) == made[:1]


def test_the_server_that_dials_chooses_the_place() -> None:
    routes = table()
    made = [route() for _ in range(3)]
    assert routes.add(made[0], info(route_pool_idx=2)) == Added(first=True, forward=False, full=False)
    assert routes.add(made[1], info()) == Added(first=False, forward=False, full=False)
    assert routes.add(made[2], info(route_pool_idx=2)) == Duplicate()
    assert [each.index for each in made] == [2, 0, -1]
    assert made[0].retry
    assert not made[2].no_reconnect


@pytest.mark.parametrize("index", [-1, 3, 7])
def test_a_place_outside_the_pool_is_refused(index: int) -> None:
    error = f"Invalid route pool index: {index} - pool size is 3"
    assert table().add(route(), info(route_pool_idx=index)) == Refused(error)
    assert table(8).add(route(), info(route_pool_idx=7)) == Added(first=True, forward=False, full=False)


def test_a_peer_that_was_dialled_chooses_no_place() -> None:
    error = "Route pool index should not be set but is set to 1"
    assert table().add(route(dialled=True), info(route_pool_idx=1)) == Refused(error)


def test_the_larger_pool_counts() -> None:
    routes = table(1)
    made = [route(dialled=True) for _ in range(5)]
    outcomes = [routes.add(each, info(route_pool_size=5)) for each in made]
    assert outcomes[0] == Added(first=True, forward=False, full=False)
    assert outcomes[-1] == Added(first=False, forward=False, full=True)
    assert routes.pool_size == 1  # of the accounts that this server announces


def test_a_peers_pool_may_grow() -> None:
    routes = table(1)
    assert routes.add(route(), info(route_pool_size=1)) == Added(first=True, forward=False, full=True)
    later = route()
    added = routes.add(later, info(route_pool_size=3, route_pool_idx=2))
    assert added == Added(first=False, forward=False, full=False)
    assert later.index == 2


@pytest.mark.parametrize(("ours", "theirs"), [(-1, 3), (3, 0), (-1, 0), (3, -1)])
def test_one_connection_without_pools(ours: int, theirs: int) -> None:
    routes = table(ours, ())
    first, second = route(dialled=True), route()
    assert routes.add(first, info(route_pool_size=theirs)) == Added(first=True, forward=False, full=True)
    assert (first.no_pool, first.index) == (True, 0)
    assert routes.add(second, info(route_pool_size=theirs)) == Duplicate()
    assert (first.retry, second.no_reconnect) == (True, True)
    routes.remove(second)
    assert list(routes) == [first]
    assert routes.remove(first) == Removed(last=True)


def test_an_account_has_a_connection_of_its_own() -> None:
    routes = table()
    first = route(account="S", dialled=True)
    assert routes.add(first, info()) == Added(first=True, forward=False)
    other = route("Q", account="S")
    assert routes.add(other, info("Q")) == Added(first=True, forward=True)
    double = route(account="S", dialled=True, explicit=True)
    assert routes.add(double, info()) == Duplicate()
    assert (first.explicit, first.retry, double.no_reconnect) == (True, True, True)
    assert routes.num_remotes == 0
    assert list(routes) == [first, other]
    assert (routes.to("R", "S"), routes.to("R")) == ([first], [])
    assert routes.remove(first) == Removed()
    assert list(routes.of_account("S")) == [other]


def test_accounts_that_cannot_have_one() -> None:
    assert table().add(route(account="A"), info()) == Refused('No route for account "A"')
    made = route(account="S", dialled=True)
    error = 'Not possible to have a dedicated route for account "S" between those servers'
    assert table().add(made, info(route_pool_size=0)) == Refused(error)
    assert made.no_reconnect


def test_the_connection_that_stays_gets_the_marks_of_the_other() -> None:
    routes = table()
    stays, goes = route(), route()
    routes.add(stays, info())
    goes.solicited = goes.explicit = True  # as if this server had dialled it
    goes.solicited = False
    assert routes.add(goes, info()) == Duplicate()
    assert (stays.solicited, stays.explicit, stays.retry) == (False, True, True)


def test_once_one_connection_of_a_pool_was_dialled_all_were() -> None:
    routes = table()
    accepted, dialled, later = route(), route(dialled=True, explicit=True), route()
    routes.add(accepted, info())
    routes.add(dialled, info())
    assert (accepted.solicited, accepted.explicit, accepted.url) == (True, True, dialled.url)
    routes.add(later, info(route_pool_idx=2))
    assert (later.solicited, later.explicit, later.url) == (True, True, dialled.url)


def test_others_are_told_of_a_remotes_first_connection_only() -> None:
    routes = table()
    routes.add(route("A"), info("A"))
    assert routes.add(route("B"), info("B")) == Added(first=True, forward=True, full=False)
    second = routes.add(route("B"), info("B", route_pool_idx=1))
    assert second == Added(first=False, forward=False, full=False)


def test_removal() -> None:
    routes = table()
    made = [route(dialled=True) for _ in range(3)]
    for each in made:
        routes.add(each, info())
    assert routes.remove(made[0]) == routes.remove(made[2]) == Removed()
    assert routes.remove(made[0]) == Removed()  # again
    again = route(dialled=True)
    assert routes.add(again, info()) == Added(first=False, forward=False, full=False)
    assert again.index == 0
    assert routes.remove(again) == Removed()
    assert "R" in routes
    assert routes.remove(made[1]) == Removed(last=True)
    assert "R" not in routes
    assert routes.remove(route()) == Removed()


def test_a_remote_is_linked_when_all_its_connections_are() -> None:
    routes = table(2, ("S", "T"))
    assert routes.linked() == {}
    pooled = [route(dialled=True) for _ in range(2)]
    for each in pooled:
        routes.add(each, info(route_pool_size=2))
        assert routes.linked() == {"R": False}
    pinned = [route(account=account) for account in ("S", "T")]
    for each, complete in zip(pinned, (False, True), strict=True):
        routes.add(each, info(route_pool_size=2, route_account=each.account))
        assert routes.linked() == {"R": complete}
    routes.remove(pinned[0])
    assert routes.linked() == {"R": False}
    for each in pooled:
        routes.remove(each)
    assert routes.linked() == {"R": False}
    routes.remove(pinned[1])
    assert routes.linked() == {}


def test_a_remote_without_a_pool_is_linked_by_one_connection() -> None:
    routes = table()
    routes.add(route(), info(route_pool_size=0))
    assert routes.linked() == {"R": True}
