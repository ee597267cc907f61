"""Pools of different sizes, none at all, and accounts with connections of their own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.clusters import Cluster, line
from support.servers import Kind

from .conftest import require_all
from .members import Client, member_kinds, named, running

pytestmark = pytest.mark.timeout(120)

SIZES = [(1, 1), (5, 5), (-1, -1), (1, 3), (5, 3), (3, -1), (-1, 1)]
REQUESTS = 200


def mixed() -> list[tuple[Kind, Kind]]:
    """Return pairs of kinds in which each kind dials, and is dialled by, another one if there is one."""
    kinds = member_kinds()
    return list(zip(kinds, [*kinds[1:], kinds[0]], strict=True))


@pytest.fixture(params=mixed(), ids=named)
def kinds(request: pytest.FixtureRequest) -> tuple[Kind, Kind]:
    kinds: tuple[Kind, Kind] = request.param
    require_all(kinds)
    return kinds


def sized(*sizes: int, more: str = "") -> Callable[[int], str]:
    """Return the block of a member by its number."""
    return lambda number: f"compression: off, pool_size: {sizes[number]}\n{more}"


def connections(cluster: Cluster, number: int) -> tuple[int, set[str]]:
    """Return how many connections of the pool a member has, and the accounts that have their own."""
    routes = cluster.routes(number)
    accounts = [route["account"] for route in routes if route.get("account")]
    assert len(accounts) == len(set(accounts))
    return len(routes) - len(accounts), set(accounts)


def use(cluster: Cluster) -> None:
    """Have clients of each account publish and ask in both directions."""
    with ExitStack() as stack:
        for user in "abcp":
            pair = [stack.enter_context(Client(server, user)) for server in cluster.servers]
            for here, there in (pair, pair[::-1]):
                there.subscribe(f"svc.{here.server.port}")
                there.reachable_from(here)
                for n in range(REQUESTS):
                    inbox = f"fresh.{n}"
                    here.send(b"SUB %b new%d\r\n" % (inbox.encode(), n))
                    here.publish(f"svc.{here.server.port}", b"%d" % n, inbox)
                for n in range(REQUESTS):
                    request = there.next()
                    assert request.payload == b"%d" % n
                    there.publish(request.reply, request.payload)
                answers = {here.next().subject for _ in range(REQUESTS)}
                assert answers == {f"fresh.{n}" for n in range(REQUESTS)}
                here.send(b"".join(b"UNSUB new%d\r\n" % n for n in range(REQUESTS)))


def use_imports(cluster: Cluster) -> None:
    """Have a client of B ask one of A, in both directions."""
    with ExitStack() as stack:
        for asks, serves in ((0, 1), (1, 0)):
            a, beside = (stack.enter_context(Client(cluster[number], "a")) for number in (serves, asks))
            b = stack.enter_context(Client(cluster[asks], "b"))
            a.subscribe(f"svc.{asks}")
            a.reachable_from(beside)
            for n in range(REQUESTS):
                inbox = b.ask(f"ask.{asks}", b"%d" % n)
                request = a.next()
                a.publish(request.reply, request.payload)
                assert b.next_on(inbox).payload == b"%d" % n


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"{sizes[0]},{sizes[1]}")
def test_sizes(kinds: tuple[Kind, Kind], sizes: tuple[int, int], tmp_path: Path) -> None:
    """A server without pool has one connection to each other one; else the larger size counts."""
    with running(tmp_path, kinds, routes=line, block=sized(*sizes)) as cluster:
        whole = (1, set()) if -1 in sizes else (max(sizes), {"SYS"})
        cluster.wait_mesh(whole[0] + len(whole[1]))
        assert [connections(cluster, number) for number in (0, 1)] == [whole, whole]
        if sizes[0] == sizes[1] or -1 in sizes:
            use(cluster)
            use_imports(cluster)
        else:
            check_without_fresh_inboxes(cluster)


def check_without_fresh_inboxes(cluster: Cluster) -> None:
    """Interest and messages use different connections where the sizes differ, and their order is not kept."""
    with ExitStack() as stack:
        for user in "abcp":
            pair = [stack.enter_context(Client(server, user)) for server in cluster.servers]
            for here, there in (pair, pair[::-1]):
                here.reachable_from(there)
                there.subscribe("svc")
                there.reachable_from(here)
                for n in range(REQUESTS):
                    inbox = here.ask("svc", b"%d" % n)
                    request = there.next_on("svc")
                    assert request.payload == b"%d" % n
                    there.publish(request.reply, request.payload)
                    assert here.next_on(inbox).payload == b"%d" % n


def test_pinned_accounts(kinds: tuple[Kind, Kind], tmp_path: Path) -> None:
    with running(tmp_path, kinds, routes=line, block=sized(2, 2, more="accounts: [P, A]")) as cluster:
        cluster.wait_mesh(5)
        assert [connections(cluster, number) for number in (0, 1)] == [(2, {"SYS", "A", "P"})] * 2
        use(cluster)
        use_imports(cluster)
        for number in (0, 1):
            (pinned,) = [route for route in cluster.routes(number) if route.get("account") == "P"]
            assert pinned["in_msgs"] >= 2 * REQUESTS


def test_a_pinned_connection_comes_back(kinds: tuple[Kind, Kind], tmp_path: Path) -> None:
    """The server that was dialled is killed, and starts again."""
    with running(tmp_path, kinds, routes=line, block=sized(3, 3, more="accounts: [P]")) as cluster:
        cluster.wait_mesh(5)
        with Client(cluster[1], "p") as there:
            there.subscribe("svc")
            cluster.kill(0)
            cluster.start_again(0)
            cluster.wait_mesh(5)
            assert [connections(cluster, number) for number in (0, 1)] == [(3, {"SYS", "P"})] * 2
            with Client(cluster[0], "p") as here:
                there.reachable_from(here)
                inbox = here.ask("svc")
                there.publish(there.next_on("svc").reply, b"back")
                assert here.next_on(inbox).payload == b"back"
