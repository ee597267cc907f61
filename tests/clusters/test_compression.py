"""Compression between servers of all kinds and modes."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.caller import Caller
from support.certs import Certificates
from support.clusters import Cluster, line, star
from support.launch import launcher, require
from support.reload import reload
from support.routepeer import POOL
from support.servers import REFERENCE, Kind, selected, until

from .members import few_pairs, named

pytestmark = pytest.mark.timeout(180)

AUTO = "{ mode: s2_auto, rtt_thresholds: [1h, 2h] }"
LEVELS = {
    # what a server with this mode writes if the peer wants compression, too
    AUTO: "s2_uncompressed",
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


@pytest.fixture(params=list(itertools.product(selected(), selected())), ids=named)
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


RELOADS = {
    # the mode of both before, that of the first afterwards, and what then both write
    "another level": ("s2_fast", "s2_best", ["s2_best", "s2_fast"]),
    "by the round trip time": (
        "s2_fast",
        "{ mode: s2_auto, rtt_thresholds: [1h, 2h] }",
        ["s2_uncompressed", "s2_fast"],
    ),
    "off": ("s2_fast", "off", ["off", "off"]),
    "accept": ("s2_better", "accept", ["s2_better", "s2_better"]),
    "on": ("accept", "s2_fast", ["s2_fast", "s2_fast"]),
}


@pytest.mark.parametrize(("before", "after", "written"), RELOADS.values(), ids=RELOADS)
@pytest.mark.parametrize("kinds", few_pairs(), ids=named)
def test_a_reload(
    kinds: tuple[Kind, Kind], before: str, after: str, written: list[str], tmp_path: Path
) -> None:
    with launcher(REFERENCE, tmp_path) as launch:
        cluster = Cluster(launch, kinds, block=f"compression: {before}", routes=line)
        cluster.wait_mesh()
        conf = cluster[0].conf.read_text()
        reload(cluster[0], conf.replace(f"compression: {before}", f"compression: {after}"))

        def settled() -> bool:
            shown = [[route["compression"] for route in cluster.routes(number)] for number in (0, 1)]
            return shown == [[mode] * (POOL + 1) for mode in written]

        until(settled)
        with Caller(cluster[0]) as publisher, Caller(cluster[1]) as subscriber:
            subscriber.subscribe("after")
            cluster.wait_interest(0, 1, "after")
            for payload in payloads():
                publisher.publish("after", payload)
            assert [subscriber.next().payload for _ in payloads()] == payloads()


@pytest.mark.parametrize("kinds", few_pairs(), ids=named)
def test_over_tls(kinds: tuple[Kind, Kind], certs: Certificates, tmp_path: Path) -> None:
    block = f"compression: s2_fast, tls {{ {certs.node.tls_block}, ca_file: '{certs.ca.cert_file}' }}"
    with launcher(REFERENCE, tmp_path) as launch:
        cluster = Cluster(launch, kinds, block=block, routes=line)
        cluster.wait_mesh()
        with Caller(cluster[0]) as one, Caller(cluster[1]) as other:
            for number, (publisher, subscriber) in enumerate(((one, other), (other, one))):
                subscriber.subscribe(f"to.{number}")
                cluster.wait_interest(number, 1 - number, f"to.{number}")
                sent = payloads() * 10
                for payload in sent:
                    publisher.publish(f"to.{number}", payload)
                assert [subscriber.next().payload for _ in sent] == sent
        assert {route["compression"] for route in cluster.routes(0)} == {"s2_fast"}
        assert "TLS handshake complete" in cluster[0].log


def test_a_server_that_starts_again_compresses_again(pair: Cluster) -> None:
    pair.stop(1)
    until(lambda: not pair.routes(0))
    pair.start_again(1)
    pair.wait_mesh()
    for number in (0, 1):
        assert {route["compression"] for route in pair.routes(number)} == {"s2_fast"}
