"""Details of clients name the other clusters, the nearest first: in gnats and in nats-server, also mixed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.launch import Launch, launcher
from support.servers import KINDS, REFERENCE, Kind, Server, selected, until
from support.superclusters import SuperCluster

from .conftest import require_all
from .members import Client
from .proxy import SLOW, Proxy

pytestmark = pytest.mark.timeout(120)

CONFIG = """
accounts {
  SYS { users: [ { user: s, password: p } ] }
  A { users: [ { user: a, password: p } ], exports: [ { service: "svc", latency: lat } ] }
  B {
    users: [ { user: b, password: p } ]
    imports: [ { service: { account: A, subject: "svc" }, share: true } ]
  }
}
system_account: SYS
"""
LOOP, THREADS = KINDS["gnats-loop"], KINDS["gnats-threads"]
WORLDS: list[tuple[Kind, ...]] = [
    (LOOP, THREADS, LOOP),
    (THREADS, REFERENCE, LOOP),
    (LOOP, REFERENCE, REFERENCE),
    (REFERENCE, THREADS, LOOP),
    (REFERENCE, REFERENCE, REFERENCE),
]
"""The kinds of three clusters of one server."""


def named(world: tuple[Kind, ...]) -> str:
    return " to ".join(kind.name for kind in world)


@pytest.fixture(scope="module", params=WORLDS, ids=named)
def kinds(request: pytest.FixtureRequest) -> tuple[Kind, ...]:
    kinds: tuple[Kind, ...] = request.param
    if not set(kinds) <= set(selected()):
        pytest.skip("a kind is not selected")
    require_all(kinds)
    return kinds


@pytest.fixture(scope="module")
def world(kinds: tuple[Kind, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuperCluster]:
    with launcher(REFERENCE, tmp_path_factory.mktemp("alternates")) as launch:
        made = SuperCluster(launch, [(kind,) for kind in kinds], config=CONFIG)
        made.wait_mesh()
        yield made


class Service:
    """A service with a requester at the same server, and a client that gets its latencies."""

    def __init__(self, server: Server) -> None:
        self.responder, self.requester = Client(server, "a"), Client(server, "b")
        self.responder.subscribe("svc")
        self.responder.subscribe("lat")

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.responder.connection.close()
        self.requester.connection.close()

    def request(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Send a request. Return the details of the requester that come with it, and the latency."""
        inbox = self.requester.ask("svc", b"question")
        request = self.responder.next_on("svc")
        self.responder.publish(request.reply, b"answer")
        assert self.requester.next_on(inbox).payload == b"answer"
        return json.loads(request.headers["Nats-Request-Info"]), self.responder.next_on("lat").json

    def alternates(self) -> list[str] | None:
        found: list[str] | None = self.request()[0].get("alts")
        return found


def between(details: dict[str, Any], first: str, last: str) -> list[str]:
    """Return the names of the members from one to another, in their order."""
    members = list(details)
    return members[members.index(first) : members.index(last) + 1]


def test_details_name_the_other_clusters(world: SuperCluster) -> None:
    for number in range(3):
        others = {"c0", "c1", "c2"} - {f"c{number}"}
        with Service(world[number]) as service:
            until(lambda service=service, others=others: set(service.alternates() or ()) == others)  # type: ignore[misc]
            details, latency = service.request()
            assert (details["server"], details["cluster"]) == (f"c{number}s0", f"c{number}")
            assert between(details, "server", "alts") == ["server", "cluster", "alts"]
            for who in latency["requestor"], latency["responder"]:
                assert (who["server"], who["cluster"]) == (f"c{number}s0", f"c{number}")
                assert set(who["alts"]) == others
                assert between(who, "server", "alts") == ["server", "cluster", "alts"]


def test_a_cluster_that_goes_is_no_alternate(launch_members: Launch, kinds: tuple[Kind, ...]) -> None:
    world = SuperCluster(launch_members, [(kind,) for kind in kinds], config=CONFIG)
    world.wait_mesh()
    with Service(world[0]) as service:
        until(lambda: set(service.alternates() or ()) == {"c1", "c2"})
        world[1].stop()
        until(lambda: service.alternates() == ["c2"])
        world[2].stop()
        until(lambda: service.alternates() is None)
        world[1].start_again()
        until(lambda: service.alternates() == ["c1"])


class SlowSuperCluster(SuperCluster):
    """Three clusters of one server; a proxy stands before the port for gateways of each."""

    def __init__(self, launch: Launch, kinds: tuple[Kind, ...], proxies: list[Proxy]) -> None:
        self._proxies = proxies
        super().__init__(launch, [(kind,) for kind in kinds], config=f"ping_interval: '0.5s'\n{CONFIG}")

    def told_port(self, number: int, place: int) -> int:
        return self._proxies[number].port

    def gateway_lines(self, number: int, place: int) -> str:
        return f"advertise: '127.0.0.1:{self.told_port(number, place)}'"


@pytest.mark.waits
async def test_the_nearest_comes_first(launch_members: Launch, kinds: tuple[Kind, ...]) -> None:
    """Both are measured again with each PING."""
    ports: list[list[int]] = []
    proxies = [Proxy(lambda number=number: ports[number][0]) for number in range(3)]  # type: ignore[misc]
    for proxy in proxies:
        await proxy.start()
    try:
        world = await asyncio.to_thread(SlowSuperCluster, launch_members, kinds, proxies)
        ports += world.ports
        await asyncio.to_thread(world.wait_mesh)
        for slow, quick in (1, 2), (2, 1):
            proxies[quick].set("pass")
            proxies[slow].set(SLOW)
            await asyncio.to_thread(wait_for_order, world[0], [f"c{quick}", f"c{slow}"])
    finally:
        for proxy in proxies:
            await proxy.close()


def wait_for_order(server: Server, order: list[str]) -> None:
    with Service(server) as service:
        until(lambda: service.alternates() == order)
