"""Clusters of three and five servers of mixed kinds: whatever their routes name, all find each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import pytest
from support.clusters import Cluster, line, mesh, star
from support.servers import Kind

from .conftest import require_all
from .members import Client, named, rows, running

pytestmark = pytest.mark.timeout(120)

MANY = 300
SHAPES: dict[str, Callable[[int, int], Sequence[int]]] = {"line": line, "star": star, "mesh": mesh}
DIALS = 4 * 8
"""Attempts to dial another server that one makes at most: a pool and the system account's, with room."""


@pytest.fixture(params=[*rows(3, 4), *rows(5, 2)], ids=named)
def kinds(request: pytest.FixtureRequest) -> tuple[Kind, ...]:
    kinds: tuple[Kind, ...] = request.param
    require_all(kinds)
    return kinds


@pytest.fixture(params=SHAPES)
def cluster(request: pytest.FixtureRequest, kinds: tuple[Kind, ...], tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path, kinds, routes=SHAPES[request.param]) as cluster:
        cluster.wait_mesh()
        yield cluster


def test_a_cluster_is_whole(cluster: Cluster) -> None:
    """Each message reaches each subscriber once, and a group once in all; nobody dials on and on."""
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(server)) for server in cluster.servers]
        for client in clients:
            client.subscribe("all.*")
            client.subscribe("one", "g")
        for client in clients:
            client.reachable_from(*clients)
        for publisher in clients:
            for n in range(MANY // len(clients)):
                publisher.publish(f"all.{n}", publisher.user.encode())
                publisher.publish("one", b"%d" % n)
        heard = [client.heard(*clients) for client in clients]
        for each in heard:
            subjects = Counter(message.subject for message in each if message.subject != "one")
            assert subjects == {f"all.{n}": len(clients) for n in range(MANY // len(clients))}
        shares = [sum(message.subject == "one" for message in each) for each in heard]
        assert sum(shares) == MANY // len(clients) * len(clients)
        assert min(shares) > MANY / len(clients) / 3
        taken = Counter(m.payload for m in chain.from_iterable(heard) if m.subject == "one")
        assert set(taken.values()) == {len(clients)}
        for server, client in zip(cluster.servers, clients, strict=True):
            ask(clients, client)
            dials = server.log.count("Trying to connect to route on")
            assert dials <= DIALS * (len(clients) - 1), f"{server.kind.name} dialled {dials} times"


def ask(clients: list[Client], requester: Client) -> None:
    """Have a client ask all others, each of which answers; then have it see that nobody is left."""
    for client in clients:
        if client is not requester:
            sid = client.subscribe(f"ask.{id(requester)}")
            client.reachable_from(requester)
            client.send(f"UNSUB {sid} 1\r\n".encode())
            client.fence()
    inbox = requester.ask(f"ask.{id(requester)}")
    for client in clients:
        if client is not requester:
            client.publish(client.next_on(f"ask.{id(requester)}").reply, b"here")
            assert requester.next_on(inbox).payload == b"here"
    requester.wait_alone(f"ask.{id(requester)}")


def test_local_members_take_what_comes_over_a_route(kinds: tuple[Kind, ...], tmp_path: Path) -> None:
    """A message is for one member of a group; two servers with members share, each among its own."""
    with running(tmp_path, kinds[:3]) as cluster, ExitStack() as stack:
        cluster.wait_mesh()
        publisher = stack.enter_context(Client(cluster[2]))
        members = [stack.enter_context(Client(cluster[number])) for number in (0, 0, 1)]
        for member in members:
            member.subscribe("q", "g")
        for member in members:
            member.reachable_from(publisher, *members)
        for n in range(MANY):
            publisher.publish("q", b"%d" % n)
        got = [member.payloads(publisher) for member in members]
        assert sorted(chain.from_iterable(got), key=int) == [b"%d" % n for n in range(MANY)]
        for payloads in got:
            assert MANY / 5 < len(payloads) < MANY / 2
            assert payloads == sorted(payloads, key=int)
