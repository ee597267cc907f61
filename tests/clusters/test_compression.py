"""Compression between servers of all kinds and modes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.caller import Caller
from support.clusters import Cluster, line, star
from support.launch import launcher, require
from support.servers import REFERENCE, Kind, selected, until

pytestmark = pytest.mark.timeout(180)

LEVELS = {
    # what a server with this mode writes if the peer wants compression, too
    "{ mode: s2_auto, rtt_thresholds: [1h, 2h] }": "s2_uncompressed",
    "s2_fast": "s2_fast",
    "s2_better": "s2_better",
    "s2_best": "s2_best",
}
MODES = ("not_supported", "off", "accept", *LEVELS)
GNATS = [kind for kind in selected() if not kind.is_reference]


def expected(ours: str, theirs: str) -> str:
    """Return the mode on /routez of a server with our mode, of its routes to one with the other mode."""
    if ours == "not_supported" or (theirs == "not_supported" and ours != "off"):
        return "not supported"
    if "off" in (ours, theirs) or ours == theirs == "accept":
        return "off"
    if ours != "accept":
        return LEVELS[ours]
    return theirs if theirs in LEVELS.values() else "s2_fast"


def payloads() -> list[bytes]:
    """Return some that shrink, and some that do not."""
    chance = random.Random(1)
    text = json.dumps([{"id": n, "name": f"n{n % 7}"} for n in range(3000)]).encode()
    return [b"", b"x", text, chance.randbytes(100_000), text[:100] * 30 + chance.randbytes(300)]


@pytest.fixture(params=GNATS, ids=lambda kind: kind.name)
def members(request: pytest.FixtureRequest) -> list[Kind]:
    """A gnats server and a nats-server for each mode."""
    require(REFERENCE)
    return [request.param] * len(MODES) + [REFERENCE] * len(MODES)


def test_all_modes_in_one_cluster(members: list[Kind], tmp_path: Path) -> None:
    def mode(number: int) -> str:
        return MODES[number % len(MODES)]

    with launcher(REFERENCE, tmp_path) as launch, ExitStack() as callers:
        cluster = Cluster(
            launch,
            members,
            block=lambda number: f"pool_size: 1, compression: {mode(number)}",
            routes=star,
            args=("-D",),
        )
        cluster.wait_mesh(2)
        numbers = range(len(cluster))
        for number in numbers:
            found = {
                int(route["remote_name"].removeprefix("s")): route["compression"]
                for route in cluster.routes(number)
            }
            others = set(numbers) - {number}
            assert found == {other: expected(mode(number), mode(other)) for other in others}
        clients = [callers.enter_context(Caller(cluster[n], inbox=f"_INBOX.{n}")) for n in numbers]
        for client in clients:
            client.subscribe("all.*")
        for number in numbers:
            for other in numbers:
                if other != number:
                    cluster.wait_interest(number, other, "all.*")
        for number, client in enumerate(clients):
            for payload in payloads():
                client.publish(f"all.{number}", payload)
            for other in clients:
                assert [other.next_on(f"all.{number}").payload for _ in payloads()] == payloads()


@pytest.fixture(
    params=[(one, other) for one in selected() for other in selected()],
    ids=lambda kinds: "+".join(kind.name for kind in kinds),
)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """Two members that compress, and the second dials the first."""
    for kind in request.param:
        require(kind)
    with launcher(REFERENCE, tmp_path) as launch:
        cluster = Cluster(launch, request.param, block="compression: s2_fast", routes=line)
        cluster.wait_mesh()
        yield cluster


@pytest.mark.parametrize("ends", [(0, 1), (1, 0)], ids=["to the second", "to the first"])
def test_large_messages_and_many_small_ones(pair: Cluster, ends: tuple[int, int]) -> None:
    chance = random.Random(2)
    sizes = [900_000, 70_000, 65_536, 16_384, *(chance.randrange(2000) for _ in range(2000))]
    sent = [
        chance.randbytes(size) if n % 2 else b"".join(b"%d," % n for n in range(size // 6 + 1))[:size]
        for n, size in enumerate(sizes)
    ]
    with Caller(pair[ends[0]]) as publisher, Caller(pair[ends[1]]) as subscriber:
        subscriber.subscribe("big")
        pair.wait_interest(ends[0], ends[1], "big")
        for payload in sent:
            publisher.publish("big", payload)
        assert [subscriber.next().payload for _ in sent] == sent


def test_a_server_that_starts_again_compresses_again(pair: Cluster) -> None:
    pair.stop(1)
    until(lambda: not pair.routes(0))
    pair.start_again(1)
    pair.wait_mesh()
    for number in (0, 1):
        assert {route["compression"] for route in pair.routes(number)} == {"s2_fast"}
