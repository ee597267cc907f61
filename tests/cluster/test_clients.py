"""Clients of nats-py whose server ends: they go on at another member that the first has told them of."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client as NatsPy
from support.clusters import Cluster, line
from support.natspy import joined
from support.servers import TIMEOUT, Kind, Server

from .conftest import require_all
from .members import ACCOUNTS, named, rows, running

pytestmark = pytest.mark.timeout(120)

LAME = "lame_duck_duration: 30s, lame_duck_grace_period: 1s"


@pytest.fixture(params=rows(3, 3), ids=named)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Three members, of which the later ones name the one before."""
    kinds: tuple[Kind, ...] = request.param
    require_all(kinds)
    with running(tmp_path, kinds, routes=line, config=ACCOUNTS + LAME) as cluster:
        cluster.wait_mesh()
        yield cluster


def options(moved: asyncio.Event) -> dict[str, object]:
    """Return what a client is connected with that sets `moved` when it has connected again."""

    async def reconnected() -> None:
        moved.set()

    async def ignore(_: Exception) -> None:
        pass

    return {
        "user": "a",
        "password": "p",
        "allow_reconnect": True,
        "reconnect_time_wait": 0.01,
        "max_reconnect_attempts": -1,
        "reconnected_cb": reconnected,
        "error_cb": ignore,
    }


def others(cluster: Cluster, number: int) -> set[str]:
    """Return the client addresses of the other members."""
    return {f"{s.host}:{s.port}" for n, s in enumerate(cluster.servers) if n != number}


def known(client: NatsPy) -> set[str]:
    """Return the addresses that the servers have told a client of."""
    return {server.netloc.rpartition("@")[2] for server in client.discovered_servers}


async def answered(client: NatsPy, subject: str) -> bytes:
    """Return the answer to a request; ask again while the interest is on its way."""
    from nats.errors import NoRespondersError, TimeoutError

    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                return (await client.request(subject, b"?", timeout=2)).data
            except (NoRespondersError, TimeoutError):
                await asyncio.sleep(0.02)


def leave(server: Server, how: str) -> None:
    """Have a server end, or send its clients away."""
    if how == "kill":
        server.kill()
    elif how == "stop":
        server.stop(rested=False)
    else:
        server.process.send_signal(signal.SIGUSR2)


@pytest.mark.parametrize("how", ["kill", "stop", "lame duck"])
async def test_clients_move(cluster: Cluster, how: str) -> None:
    """A subscriber and a responder at the member that leaves; they are reached again from another one."""
    moved = asyncio.Event()
    async with (
        joined(cluster[0].url, **options(moved)) as client,
        joined(cluster[2].url, user="a", password="p") as asker,
    ):
        assert known(client) == others(cluster, 0)

        async def serve(message: object) -> None:
            await message.respond(b"here")  # type: ignore[attr-defined]

        subscription = await client.subscribe("news.*")
        await client.subscribe("svc", cb=serve)
        await client.flush()
        assert await answered(asker, "svc") == b"here"
        leave(cluster[0], how)
        async with asyncio.timeout(TIMEOUT):
            await moved.wait()
        assert client.connected_url.netloc.rpartition("@")[2] in others(cluster, 0)
        assert await answered(asker, "svc") == b"here"
        for n in range(100):
            await asker.publish("news.x", b"%d" % n)
        got = [(await subscription.next_msg(timeout=TIMEOUT)).data for n in range(100)]
        assert got == [b"%d" % n for n in range(100)]
    if how == "lame duck":
        cluster[0].stop(rested=False)


async def test_clients_learn_of_members_that_come_and_go(cluster: Cluster) -> None:
    """One that starts again is told of anew."""
    moved = asyncio.Event()
    async with joined(cluster[1].url, **options(moved)) as client:
        cluster[2].stop(rested=False)
        await told(client, others(cluster, 1) - {f"{cluster[2].host}:{cluster[2].port}"})
        cluster.start_again(2)
        await told(client, others(cluster, 1))
        assert not moved.is_set()


async def told(client: NatsPy, expected: set[str]) -> None:
    """Wait until a client's last INFO has these addresses and its server's."""
    own = client.connected_url.netloc.rpartition("@")[2]
    async with asyncio.timeout(TIMEOUT):
        while set(client._server_info.get("connect_urls") or ()) - {own} != expected:
            await asyncio.sleep(0.01)
