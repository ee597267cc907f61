"""Topologies with leaf nodes, of servers of all kinds in all places: every client has what it wants, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain

import pytest
from support.caller import Message
from support.wire import header

from .members import Client, named
from .trees import Dial, Place, Shape, Tree, assignments, growing

pytestmark = pytest.mark.timeout(120)

MANY = 60
"""Messages of each publisher."""
SHARED = 400
"""Messages to a queue group."""
HUBS = (Place("H", maps=True), Place("H", maps=True))
PARTED = frozenset({(1, 2), (2, 1)})

SHAPES = {
    "two hubs, two leaves": Shape((*HUBS, Place(dials=(Dial(0),)), Place(dials=(Dial(1),)))),
    "two hubs, a leaf cluster": Shape((*HUBS, Place("L", (Dial(0),)), Place("L", (Dial(1),)))),
    "chain": Shape((Place(maps=True), Place(dials=(Dial(0),)), Place(dials=(Dial(1),)))),
    "two accounts": Shape((*HUBS, Place(dials=(Dial(0), Dial(1, "B")), bare=True)), accounts="AB"),
    "isolated by the hub": Shape(
        (
            Place(maps=True, block="isolate_leafnode_interest: true"),
            Place(dials=(Dial(0),)),
            Place(dials=(Dial(0),)),
        ),
        PARTED,
    ),
    "one asks for isolation": Shape(
        (
            Place(maps=True),
            Place(dials=(Dial(0, more="request_isolation: true"),)),
            Place(dials=(Dial(0),)),
        ),
        frozenset({(1, 2)}),
    ),
}
TREES = [(name, kinds) for name, shape in SHAPES.items() for kinds in assignments(len(shape.places))]


@pytest.fixture(scope="module", params=TREES, ids=lambda tree: f"{tree[0]}: {named(tree[1])}")
def tree(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    """A topology that the tests of this module share.

    Where interest is kept from leaf nodes, one client of each account at the hub has the marks that Client
    waits for, so that they pass through the hub.
    """
    name, kinds = request.param
    shape = SHAPES[name]
    with growing(tmp_path_factory.mktemp("tree"), shape, kinds) as tree, ExitStack() as stack:
        for account in shape.accounts if shape.parted else "":
            stack.enter_context(Client(tree[0], account.lower())).subscribe("mark.>")
        yield tree


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def everywhere(tree: Tree, stack: ExitStack, user: str = "a") -> list[Client]:
    """Connect a client at each place."""
    return [stack.enter_context(Client(server, user)) for server in tree.servers]


def reachable(clients: Sequence[Client], publishers: Sequence[Client]) -> None:
    for client in clients:
        client.reachable_from(*publishers)


def heard(client: Client, publishers: Sequence[Client]) -> list[Message]:
    """Return what a client has heard of publishers, which must not go on afterwards."""
    messages = client.heard(*publishers)
    assert client.heard(*publishers) == []
    return messages


def numbers(messages: list[Message], publisher: int) -> list[int]:
    """Return the numbers in the payloads of one publisher, in the order of arrival."""
    pairs = [tuple(map(int, message.payload.split())) for message in messages]
    return [number for each, number in pairs if each == publisher]


def test_everything_is_heard_once_and_in_order(tree: Tree, stack: ExitStack) -> None:
    """With headers and a reply subject, on wildcards and literal subjects, in each account."""
    for account in tree.shape.accounts:
        clients = everywhere(tree, stack, account.lower())
        subjects = "all.*", "all.1"
        for client in clients:
            client.sids = [client.subscribe(subject) for subject in subjects]  # type: ignore[attr-defined]
        reachable(clients, clients)
        for n in range(MANY):
            for number, publisher in enumerate(clients):
                publisher.publish(f"all.{n % 2}", b"%d %d" % (number, n), "re.x", header(f"N: {n}"))
        for client in clients:
            messages = heard(client, clients)
            assert {(m.reply, m.headers["N"] == m.payload.split()[1].decode()) for m in messages} == {
                ("re.x", True)
            }
            wild, literal = (
                [m for m in messages if m.sid == sid]
                for sid in client.sids  # type: ignore[attr-defined]
            )
            for number in range(len(clients)):
                assert numbers(wild, number) == list(range(MANY))
                assert numbers(literal, number) == list(range(1, MANY, 2))


def test_interest_ends(tree: Tree, stack: ExitStack) -> None:
    """A subscription of one place ends by UNSUB, by its number of messages, and with its client."""
    clients = everywhere(tree, stack)
    for number, subscriber in enumerate(clients):
        others = [c for n, c in enumerate(clients) if (n, number) not in tree.shape.parted and n != number]
        for literal in f"end.{number}", f"end.{number}.*":
            sid = subscriber.subscribe(literal)
            limited = subscriber.subscribe(literal)
            subscriber.send(f"UNSUB {limited} 1\r\n".encode())
            reachable([subscriber], others)
            subject = literal.replace("*", "x")
            for other in others:
                other.publish(subject, b"x")
            messages = heard(subscriber, others)
            assert Counter(m.sid for m in messages) == {sid: len(others), limited: 1}
            subscriber.send(f"UNSUB {sid}\r\n".encode())
            subscriber.fence()
            for other in others:
                other.wait_alone(subject)
                other.publish(subject, b"late")
            assert heard(subscriber, others) == []
            with Client(subscriber.server) as brief:
                brief.subscribe(literal)
                reachable([brief], others)
            for other in others:
                other.wait_alone(subject)


def test_requests_are_answered(tree: Tree, stack: ExitStack) -> None:
    """As long as one client serves, wherever it is; another one comes and goes meanwhile, and is silent."""
    clients = everywhere(tree, stack)
    silent = everywhere(tree, stack)
    for number, responder in enumerate(clients):
        sid = responder.subscribe(f"serve.{number}.*")
        reachable([responder], [client for client in clients if client is not responder])
        for place, requester in enumerate(clients):
            if not tree.shape.can_ask(place, number):
                continue
            for n in range(MANY // 3):
                other = silent[n % len(silent)]
                gone = other.subscribe(f"serve.{number}.{n}")
                subject = f"serve.{number}.{n}"
                inbox = requester.ask(subject, b"%d" % n, header("A: b"))
                request = responder.next_on(subject)
                assert (request.payload, request.header) == (b"%d" % n, header("A: b"))
                responder.publish(request.reply, b"so", "", header("C: d"))
                answer = requester.next_on(inbox)
                assert (answer.payload, answer.header) == (b"so", header("C: d"))
                other.send(f"UNSUB {gone}\r\n".encode())
        responder.send(f"UNSUB {sid}\r\n".encode())
        for requester in clients:
            requester.wait_alone(f"serve.{number}.x")


def group(tree: Tree, stack: ExitStack, places: Sequence[int], subject: str) -> dict[int, list[Client]]:
    """Connect two members of a queue group at each of the places."""
    members = {n: [stack.enter_context(Client(tree[n])) for _ in range(2)] for n in places}
    for member in chain.from_iterable(members.values()):
        member.subscribe(subject, "g")
    return members


def shares(publisher: Client, members: dict[int, list[Client]], subject: str) -> dict[int, list[int]]:
    """Publish to a group; check that each message came once, and in order. Return how many each has got."""
    reachable([*chain.from_iterable(members.values())], [publisher])
    for n in range(SHARED):
        publisher.publish(subject, b"%d" % n)
    got = {
        n: [[m.payload for m in heard(member, [publisher])] for member in own] for n, own in members.items()
    }
    taken = list(chain.from_iterable(got.values()))
    assert sorted(map(int, chain.from_iterable(taken))) == list(range(SHARED))
    for payloads in taken:
        assert payloads == sorted(payloads, key=int)
    return {n: [len(payloads) for payloads in own] for n, own in got.items()}


def test_members_of_the_own_cluster_take_all(tree: Tree, stack: ExitStack) -> None:
    """Members behind leaf nodes get nothing meanwhile; the others share."""
    members = group(tree, stack, range(len(tree)), "own.*")
    for number, publisher in enumerate(everywhere(tree, stack)):
        found = shares(publisher, members, "own.x")
        own = tree.shape.own(number)
        for n, counts in found.items():
            if n in own:
                assert min(counts) > SHARED / len(tree) / 4, found
            else:
                assert max(counts) == 0, found


def test_members_elsewhere(tree: Tree, stack: ExitStack) -> None:
    """One place at a time serves, then all places outside of the publisher's cluster do."""
    for number, publisher in enumerate(everywhere(tree, stack)):
        others = [n for n in tree.shape.others(number) if (number, n) not in tree.shape.parted]
        for places in [*([n] for n in others), others]:
            with ExitStack() as inner:
                found = shares(publisher, group(tree, inner, places, "away"), "away")
                if len(places) == 1:
                    assert min(found[places[0]]) > SHARED / 6, found
            publisher.wait_alone("away")  # else some go to the members before, who have left


def test_several_groups_and_a_plain_subscription(tree: Tree, stack: ExitStack) -> None:
    clients = everywhere(tree, stack)
    wanted = ("sev.x", "g1"), ("sev.*", "g2"), ("sev.>", "g3"), ("sev.x", ""), ("sev.x", "g3")
    sids = [[client.subscribe(*each) for each in wanted] for client in clients]
    reachable(clients, clients)
    for n in range(MANY):
        for number, publisher in enumerate(clients):
            publisher.publish("sev.x", b"%d %d" % (number, n))
    messages = [heard(client, clients) for client in clients]
    everything = [b"%d %d" % (number, n) for number in range(len(clients)) for n in range(MANY)]
    for queue in "", "g1", "g2", "g3":
        kinds = [kind for kind, (_, name) in enumerate(wanted) if name == queue]
        got = [
            [m.payload for m in each if m.sid in [mine[kind] for kind in kinds]]
            for each, mine in zip(messages, sids, strict=True)
        ]
        if queue:
            assert Counter(chain.from_iterable(got)) == Counter(everything), queue
        else:
            assert all(sorted(each) == sorted(everything) for each in got)


def test_services_of_another_account(tree: Tree, stack: ExitStack) -> None:
    """Each place in turn has the exporter's client; clients of the importer ask everywhere."""
    exporters, importers = everywhere(tree, stack), everywhere(tree, stack, "b")
    for number, responder in enumerate(exporters):
        sids = [responder.subscribe(f"svc.{number}"), responder.subscribe(f"group.{number}", "g")]
        reachable([responder], [each for each in exporters if each is not responder])
        for place, requester in enumerate(importers):
            if (place, number) in tree.shape.parted:
                requester.wait_alone(f"ask.{number}")
            if not tree.shape.can_ask(place, number):
                continue
            for n in range(5):
                for asked, served in ("ask", "svc"), ("group", "group"):
                    inbox = requester.ask(f"{asked}.{number}", b"%d" % n)
                    request = responder.next()
                    assert (request.subject, request.payload) == (f"{served}.{number}", b"%d" % n)
                    assert request.headers["Nats-Request-Info"].startswith('{"acc":"B"')
                    responder.publish(request.reply, b"so", "", header("C: d"))
                    answer = requester.next_on(inbox)
                    assert (answer.payload, answer.headers["C"]) == (b"so", "d")
        for sid in sids:
            responder.send(f"UNSUB {sid}\r\n".encode())
        for place, requester in enumerate(importers):
            if not tree.shape.places[place].bare:  # or else its hub wants requests, whoever serves
                requester.wait_alone(f"ask.{number}")


def test_streams_of_another_account(tree: Tree, stack: ExitStack) -> None:
    exporters, importers = everywhere(tree, stack), everywhere(tree, stack, "b")
    beside = everywhere(tree, stack)
    sids = [(each.subscribe("from.st.*"), each.subscribe("from.st.1")) for each in importers]
    # Subscribed to later at the same servers: what comes to these is known where the imports are.
    for each in beside:
        each.subscribe("st.*")
    reachable(beside, exporters)
    for n in range(MANY):
        for number, publisher in enumerate(exporters):
            publisher.publish(f"st.{n % 2}", b"%d %d" % (number, n), "", header("A: b"))
    for each in beside:
        messages = heard(each, exporters)
        for number in range(len(tree)):
            assert numbers(messages, number) == list(range(MANY))
    for importer, (wild, literal) in zip(importers, sids, strict=True):
        importer.fence()
        messages = importer.kept()
        assert {(m.subject, m.header) for m in messages} == {
            ("from.st.0", header("A: b")),
            ("from.st.1", header("A: b")),
        }
        for number in range(len(tree)):
            assert numbers([m for m in messages if m.sid == wild], number) == list(range(MANY))
            assert numbers([m for m in messages if m.sid == literal], number) == list(range(1, MANY, 2))


def test_a_mapping_at_the_hub(tree: Tree, stack: ExitStack) -> None:
    """A client of a leaf node publishes what only its hub maps: the mapped subject is heard at the hubs.

    Places without a mapping that are nearer to the publisher hear the subject as it was published.
    """
    clients = everywhere(tree, stack)
    hubs = [n for n, place in enumerate(tree.shape.places) if place.maps]
    for client in clients:
        client.subscribe("mapped.*")
        client.subscribe("map.*")
    reachable(clients, clients)
    for number, publisher in enumerate(clients):
        for n in range(MANY):
            publisher.publish(f"map.{n}", b"%d %d" % (number, n))
    for place in hubs:
        messages = heard(clients[place], clients)
        assert {m.subject.partition(".")[0] for m in messages} == {"mapped"}
        for number in range(len(clients)):
            assert numbers(messages, number) == list(range(MANY))


def test_interest_is_kept_from_isolated_leaf_nodes(tree: Tree, stack: ExitStack) -> None:
    """What comes to the hub because of its own clients goes on to all leaf nodes."""
    clients = everywhere(tree, stack)
    for publisher, subscriber in tree.shape.parted:
        here, there = clients[publisher], clients[subscriber]
        sid = there.subscribe("apart.*")
        there.subscribe("apart.x", "g")
        there.reachable_from(*clients)
        assert here.request("apart.x").status == "503"
        clients[0].publish("apart.x", b"hub")
        assert [m.payload for m in heard(there, clients)] == [b"hub", b"hub"]
        hub = clients[0].subscribe("apart.*")
        reachable([clients[0]], [here])
        here.publish("apart.x", b"through")
        assert [m.payload for m in heard(clients[0], clients)] == [b"through"]
        assert b"through" in [m.payload for m in heard(there, clients) if m.sid == sid]
        clients[0].send(f"UNSUB {hub}\r\n".encode())
        here.wait_alone("apart.x")
        there.send(f"UNSUB {sid}\r\nUNSUB {int(sid) + 1}\r\n".encode())
        there.fence()
