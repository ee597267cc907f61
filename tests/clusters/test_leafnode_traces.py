"""Traces of messages over leaf nodes: each server on the way tells what it did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from support.wire import header

from .members import Client, named
from .trees import Dial, Place, Shape, Tree, assignments, growing

pytestmark = pytest.mark.timeout(120)

CLIENT, LEAF = 0, 4
SHAPES = {
    "hub and two leaves": Shape((Place(maps=True), Place(dials=(Dial(0),)), Place(dials=(Dial(0),)))),
    "chain": Shape((Place(maps=True), Place(dials=(Dial(0),)), Place(dials=(Dial(1),)))),
    "the hub dials": Shape(
        (Place(maps=True, dials=(Dial(1, more="hub: true"),)), Place(), Place(dials=(Dial(0),)))
    ),
}
TREES = [(name, kinds) for name, shape in SHAPES.items() for kinds in assignments(len(shape.places))]
PLACES = range(3)


@pytest.fixture(scope="module", params=TREES, ids=lambda tree: f"{tree[0]}: {named(tree[1])}")
def tree(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    """A topology that the tests of this module share."""
    name, kinds = request.param
    with growing(tmp_path_factory.mktemp("traces"), SHAPES[name], kinds) as tree:
        yield tree


@pytest.fixture
def clients(tree: Tree) -> Iterator[list[Client]]:
    """A client at each place."""
    with ExitStack() as stack:
        yield [stack.enter_context(Client(server)) for server in tree.servers]


def neighbours(shape: Shape, place: int) -> set[int]:
    """Return the places to which one has a leaf node connection."""
    dialled = {dial.hub for dial in shape.places[place].dials}
    return dialled | {n for n in PLACES if any(dial.hub == place for dial in shape.places[n].dials)}


@dataclass
class Told:
    """A server's trace: where the message has come from, the clients and servers that it goes to."""

    ingress: dict[str, Any]
    clients: list[dict[str, Any]]
    hops: dict[str, str]
    """The hop of each other server, by name."""
    hop: str
    """The hop of this server, empty for the first one."""
    others: list[dict[str, Any]]
    """Events of other types."""

    @classmethod
    def read(cls, trace: Any) -> Told:
        ingress, *events = trace["events"]
        for event in (ingress, *events):
            event.pop("ts")
            event.pop("cid", None)
        egress = [event for event in events if event["type"] == "eg"]
        links = [event for event in egress if event["kind"] == LEAF]
        assert all(set(link) == {"type", "kind", "name", "hop"} for link in links), links
        assert trace.get("hops", 0) == len(links)
        return cls(
            ingress,
            [event for event in egress if event["kind"] == CLIENT],
            {link["name"]: link["hop"] for link in links},
            *(trace["request"]["header"].get("Nats-Trace-Hop") or [""]),
            [event for event in events if event["type"] != "eg"],
        )


def ask(publisher: Client, reader: Client, subject: str, count: int, *lines: str) -> dict[str, Told]:
    """Publish a message whose traces go to a reader; return those of so many servers, by name."""
    reader.subscribe("dest")
    reader.reachable_from(publisher)
    publisher.publish(subject, b"hi", header=header("Nats-Trace-Dest: dest", *lines))
    traces = [reader.next_on("dest").json for _ in range(count)]
    found = {trace["server"]["name"]: Told.read(trace) for trace in traces}
    assert len(found) == count
    return found


def check_way(shape: Shape, found: dict[str, Told], first: int, wanted: set[int]) -> None:
    """Check that a message goes from one place to the wanted ones; each server names the next hops."""
    seen: set[str] = set()

    def follow(place: int, before: int | None) -> None:
        told = found[f"s{place}"]
        seen.add(f"s{place}")
        beyond = {n for n in neighbours(shape, place) - {before} if shape.beyond(place, n) & wanted}
        assert set(told.hops) == {f"s{n}" for n in beyond}
        prefix = f"{told.hop}." if told.hop else ""
        assert sorted(told.hops.values()) == [f"{prefix}{n + 1}" for n in range(len(beyond))]
        if before is None:
            assert set(told.ingress) == {"type", "kind", "acc", "subj"}
            assert told.hop == ""
        else:
            assert set(told.ingress) == {"type", "kind", "name", "acc", "subj"}
            assert (told.ingress["kind"], told.ingress["name"]) == (LEAF, f"s{before}")
            assert told.hop == found[f"s{before}"].hops[f"s{place}"]
        for n in beyond:
            follow(n, place)

    assert found[f"s{first}"].ingress["kind"] == CLIENT
    follow(first, None)
    assert seen == set(found)


def everybody(clients: Sequence[Client], subject: str, group: str = "") -> None:
    """Have all clients subscribe."""
    for client in clients:
        client.subscribe(subject, group)
    for client in clients:
        client.reachable_from(*clients)


@pytest.mark.parametrize("only", [False, True], ids=["delivered", "traced only"])
@pytest.mark.parametrize("first", PLACES)
def test_every_server_on_the_way_tells(tree: Tree, clients: list[Client], first: int, only: bool) -> None:
    """Wherever the traces are read."""
    everybody(clients, "t.*")
    lines = ["Nats-Trace-Only: true"] * only
    for reader in PLACES:
        with Client(tree[reader]) as reading:
            found = ask(clients[first], reading, f"t.{reader}", len(PLACES), *lines)
        check_way(tree.shape, found, first, set(PLACES))
        for told in found.values():
            assert (told.ingress["type"], told.ingress["acc"], told.ingress["subj"]) == (
                "in",
                "A",
                f"t.{reader}",
            )
            assert told.clients == [{"type": "eg", "kind": CLIENT, "sub": "t.*"}]
            assert told.others == []
    for client in clients:
        heard = [message.subject for message in client.heard(clients[first])]
        assert heard == [] if only else [f"t.{reader}" for reader in PLACES]


@pytest.mark.parametrize("far", PLACES)
def test_a_group_far_away(tree: Tree, clients: list[Client], far: int) -> None:
    for first in set(PLACES) - {far}:
        with Client(tree[far]) as member:
            member.subscribe(f"group.{first}", "g")
            member.reachable_from(clients[first])
            way = way_between(tree.shape, first, far)
            found = ask(clients[first], clients[first], f"group.{first}", len(way))
            check_way(tree.shape, found, first, {far})
            assert set(found) == {f"s{n}" for n in way}
            assert found[f"s{far}"].clients == [
                {"type": "eg", "kind": CLIENT, "sub": f"group.{first}", "queue": "g"}
            ]
            assert len(member.heard(clients[first])) == 1


def way_between(shape: Shape, first: int, last: int) -> list[int]:
    """Return the places from one to another, both included."""
    if first == last:
        return [first]
    (following,) = (n for n in neighbours(shape, first) if last in shape.beyond(first, n))
    return [first, *way_between(shape, following, last)]


@pytest.mark.parametrize("first", PLACES)
def test_nobody_wants_it(tree: Tree, clients: list[Client], first: int) -> None:
    found = ask(clients[first], clients[0], "nobody.wants.this", 1)
    told = found[f"s{first}"]
    assert (told.clients, told.hops, told.others, told.hop) == ([], {}, [], "")


@pytest.mark.parametrize("first", PLACES)
def test_mappings_of_the_hub(tree: Tree, clients: list[Client], first: int) -> None:
    """Only place 0 maps; it announces its mappings, so messages from everywhere come there."""
    clients[0].subscribe("twice.*")
    clients[0].reachable_from(*clients)
    found = ask(clients[first], clients[first], "map.x", len(way_between(tree.shape, first, 0)))
    told = found["s0"]
    assert [(event["type"], event["to"]) for event in told.others] == [("sm", "mapped.x")]
    assert told.ingress["subj"] == "map.x"


def test_a_trace_of_a_message_with_a_hop(tree: Tree, clients: list[Client]) -> None:
    """A client has no hop before it, whatever it says."""
    everybody(clients, "t.*")
    found = ask(clients[1], clients[1], "t.1", len(PLACES), "Nats-Trace-Hop: 7.7")
    assert found["s1"].ingress["kind"] == CLIENT
    assert sorted(found["s1"].hops.values()) == [f"{n + 1}" for n in range(len(neighbours(tree.shape, 1)))]
