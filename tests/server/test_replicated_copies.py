"""Mirrors, sources, delete markers and schedules behind Raft groups, in servers of one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.servers import until

from gnats.jetstream.control.membership import Membership
from gnats.options.values.jetstream import JetStreamOptions
from gnats.testing import ClusterThread

from .test_replicated_consumers import SECOND, World

pytestmark = pytest.mark.timeout(240)

ROUNDS, EACH = 4, 25


@pytest.fixture
def world() -> Iterator[World]:
    with ClusterThread(3, jetstream=JetStreamOptions(enabled=True)) as cluster:
        yield World(cluster)


def state(world: World, name: str) -> dict[str, Any]:
    found: dict[str, Any] = world.api(f"STREAM.INFO.{name}")["state"]
    return found


def make(world: World, name: str, **config: Any) -> None:
    world.api(f"STREAM.CREATE.{name}", {"name": name, "num_replicas": 3} | config)


def step_down(world: World, name: str) -> None:
    """Have another server lead; it is left open which."""
    world.ask(f"$JS.API.STREAM.LEADER.STEPDOWN.{name}", b"")


def test_copies_while_leaders_change(world: World) -> None:
    """The origin keeps one message a subject, so its mirror has gaps to skip."""
    make(world, "O", subjects=["o.>"], max_msgs_per_subject=1)
    make(world, "M", mirror={"name": "O"})
    make(world, "S", sources=[{"name": "O"}], allow_direct=True)
    last = 0
    for turn in range(ROUNDS):
        for number in range(EACH):
            answer = until(lambda number=number: world.ask(f"o.{number % 5}", b"%d" % number), 60)  # type: ignore[misc]
            last = answer.json["seq"]
        step_down(world, "MSO"[turn % 3])
    until(lambda: state(world, "M")["last_seq"] == last, 120)
    until(lambda: sourced(world) and sourced(world)[-1] == last, 120)
    for name in ("M", "S"):
        seen = set()
        for _ in range(3):
            step_down(world, name)
            seen.add(str(until(lambda name=name: state(world, name), 60)))  # type: ignore[misc]
        assert len(seen) == 1
    seqs = sourced(world)
    assert seqs == sorted(set(seqs))


def sourced(world: World) -> list[int]:
    """Return the sequences in the origin of what was copied from there, in the order of the copy."""
    found = []
    with world.caller() as caller:
        for seq in range(1, state(world, "S")["last_seq"] + 1):
            answer = caller.request("$JS.API.DIRECT.GET.S", {"seq": seq})
            if line := answer.headers.get("Nats-Stream-Source"):
                found.append(int(line.split(" ")[1]))
    return found


def test_markers_and_schedules(world: World) -> None:
    make(
        world,
        "T",
        subjects=["t.>"],
        max_age=SECOND,
        allow_msg_ttl=True,
        allow_rollup_hdrs=True,
        allow_msg_schedules=True,
        subject_delete_marker_ttl=SECOND,
    )
    for number in range(EACH):
        answer = until(lambda number=number: world.ask(f"t.{number % 5}", b""), 60)  # type: ignore[misc]
    step_down(world, "T")
    until(lambda: state(world, "T")["messages"] == 0, 60)
    assert state(world, "T")["last_seq"] == answer.json["seq"] + 5


def test_a_copy_takes_a_rollup_while_what_it_removes_is_in_flight(world: World) -> None:
    make(world, "O", subjects=["o.>"], num_replicas=1, allow_rollup_hdrs=True)
    make(world, "M", mirror={"name": "O"}, allow_rollup_hdrs=True)
    until(lambda: world.ask("o.0", b""), 60)
    until(lambda: state(world, "M")["last_seq"] == 1, 60)
    host = int(world.api("STREAM.INFO.O")["cluster"]["leader"][1:])
    preferred = json.dumps({"placement": {"preferred": f"s{host}"}}).encode()

    def in_flight() -> int | None:
        """Return how many messages wait for the mirror's group; None: another server leads it."""
        js = world.cluster.servers[host].server.jetstream
        member = js.accounts["$G"].streams["M"].member if js else None
        assert isinstance(member, Membership)
        return member.waiting if member.leads else None

    def led() -> bool:
        world.ask("$JS.API.STREAM.LEADER.STEPDOWN.M", preferred)
        return in_flight() is not None

    until(led, 60)
    until(lambda: world.ask("o.1", b""), 60)
    until(lambda: state(world, "M")["last_seq"] == state(world, "O")["last_seq"], 60)
    others = [number for number in range(3) if number != host]
    for number in others:
        world.cluster.stop(number)
    with world.caller(host) as caller:
        for number, header in enumerate((b"", b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"), 1):
            assert "seq" in caller.request("o.0", b"", header=header).json
            until(lambda number=number: in_flight() == number)  # type: ignore[misc]
    for number in others:
        world.cluster.start(number)
    until(lambda: state(world, "M")["last_seq"] == state(world, "O")["last_seq"], 120)
    assert state(world, "M")["messages"] == state(world, "O")["messages"] == 2
