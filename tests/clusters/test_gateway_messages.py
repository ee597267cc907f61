"""Messages between clusters of gnats and nats-server: to each subscriber once, to each group in one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from support.launch import launcher
from support.servers import KINDS, REFERENCE, Kind, selected
from support.superclusters import SuperCluster
from support.wire import header

from .conftest import require_all
from .members import ACCOUNTS, OLD, Client

pytestmark = pytest.mark.timeout(120)

MESSAGES = 200
LOOP, THREADS = KINDS["gnats-loop"], KINDS["gnats-threads"]
World = tuple[tuple[Kind, ...], ...]
WORLDS: list[World] = [
    ((THREADS, LOOP), (LOOP,), (THREADS,)),
    ((THREADS, REFERENCE), (LOOP,), (REFERENCE,)),
    ((REFERENCE, LOOP), (REFERENCE,), (THREADS,)),
    ((THREADS, LOOP), (OLD,), (THREADS,)),
    ((OLD, THREADS), (LOOP,), (OLD,)),
]
"""The kinds of three clusters, one of two servers."""
PAIR, FIRST, SECOND = range(3)
"""The clusters."""


def named(world: World) -> str:
    return " to ".join("+".join(kind.name for kind in cluster) for cluster in world)


@pytest.fixture(scope="module", params=WORLDS, ids=named)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuperCluster]:
    """The tests of the module share them."""
    kinds = tuple(kind for cluster in request.param for kind in cluster)
    if not set(kinds) - {OLD} <= set(selected()):
        pytest.skip("a kind is not selected")
    require_all(kinds)
    with launcher(REFERENCE, tmp_path_factory.mktemp("world")) as launch:
        made = SuperCluster(launch, request.param, config=ACCOUNTS)
        made.wait_mesh()
        yield made


@pytest.fixture
def clients(world: SuperCluster) -> Iterator[list[list[Client]]]:
    """A client of each server, by cluster."""
    with ExitStack() as stack:
        yield [[stack.enter_context(Client(server)) for server in cluster] for cluster in world.clusters]


def reach(receivers: list[Client], *publishers: Client) -> None:
    for receiver in receivers:
        receiver.reachable_from(*publishers)


def flat(clients: list[list[Client]]) -> list[Client]:
    return [client for cluster in clients for client in cluster]


def test_each_subscriber_gets_each_message_once(clients: list[list[Client]]) -> None:
    """Whatever way it goes: none comes twice, though all clusters are connected to all others."""
    everyone = flat(clients)
    for client in everyone:
        client.subscribe("all.*")
    reach(everyone, *everyone)
    for number, client in enumerate(everyone):
        for n in range(MESSAGES):
            client.publish(f"all.{number}", b"%d" % n)
    for client in everyone:
        found: dict[str, list[bytes]] = {}
        for message in client.heard(*everyone):
            found.setdefault(message.subject, []).append(message.payload)
        assert found == {
            f"all.{number}": [b"%d" % n for n in range(MESSAGES)] for number in range(len(everyone))
        }


@pytest.mark.parametrize("publisher", [(PAIR, 0), (PAIR, 1), (FIRST, 0), (SECOND, 0)])
def test_a_group_prefers_its_publishers_cluster(
    clients: list[list[Client]], publisher: tuple[int, int]
) -> None:
    everyone = flat(clients)
    for client in everyone:
        client.subscribe("job", "workers")
    sender = clients[publisher[0]][publisher[1]]
    reach(everyone, sender)
    for n in range(MESSAGES):
        sender.publish("job", b"%d" % n)
    done = [[client.payloads(sender) for client in cluster] for cluster in clients]
    assert Counter(payload for part in done[publisher[0]] for payload in part) == Counter(
        b"%d" % n for n in range(MESSAGES)
    )
    assert not any(part for number, parts in enumerate(done) if number != publisher[0] for part in parts)
    if publisher[0] == PAIR:
        assert min(map(len, done[PAIR])) > MESSAGES // 5


def test_a_group_without_a_member_here_is_served_in_one_other_cluster(clients: list[list[Client]]) -> None:
    sender = clients[FIRST][0]
    others = [*clients[PAIR], *clients[SECOND]]
    for client in others:
        client.subscribe("far", "workers")
        client.subscribe("far")
    reach(others, sender)
    for n in range(MESSAGES):
        sender.publish("far", b"%d" % n)
    heard = [client.payloads(sender) for client in others]
    # each gets all of them, and the group's in addition
    extra = Counter(payload for part in heard for payload in part)
    assert extra == Counter({b"%d" % n: len(others) + 1 for n in range(MESSAGES)})
    near, there = sum(map(len, heard[:2])) - 2 * MESSAGES, len(heard[2]) - MESSAGES
    assert sorted((near, there)) == [0, MESSAGES]


def test_groups_are_told_apart(clients: list[list[Client]]) -> None:
    """One has a member in the publisher's cluster, another one in the second cluster only."""
    (sender, here), there, far = clients[PAIR], clients[FIRST][0], clients[SECOND][0]
    here.subscribe("mixed", "near")
    there.subscribe("mixed", "near")
    there.subscribe("mixed", "away")
    far.subscribe("mixed")
    reach([here, there, far], sender)
    for n in range(MESSAGES):
        sender.publish("mixed", b"%d" % n, "reply.x")
    expected = [b"%d" % n for n in range(MESSAGES)]
    assert [client.payloads(sender) for client in (here, there, far)] == [expected] * 3


def test_messages_cross_as_they_are(clients: list[list[Client]]) -> None:
    everyone = flat(clients)
    for client in everyone:
        client.subscribe("as.is")
    reach(everyone, *everyone)
    for sender in everyone:
        for payload in b"", b"x", b"y" * 70_000:
            sender.publish("as.is", payload, "reply.to")
            sender.publish("as.is", payload, header=header("A: b"))
        for client in everyone:
            heard = [(m.payload, m.header, m.reply) for m in client.heard(sender)]
            expected = []
            for payload in b"", b"x", b"y" * 70_000:
                expected += [(payload, b"", "reply.to"), (payload, header("A: b"), "")]
            assert heard == expected


def test_a_request_to_nobody_is_answered_at_once(clients: list[list[Client]]) -> None:
    for requester in flat(clients):
        inbox = requester.ask("nobody.here")
        assert requester.next_on(inbox).status == "503"


def test_interest_that_ends_is_forgotten(clients: list[list[Client]]) -> None:
    """The requester's server says so, once the last server of the other cluster has."""
    requester, (first, second) = clients[SECOND][0], clients[PAIR]
    sids = [client.subscribe("ends") for client in (first, second)]
    reach([first, second], requester)
    requester.publish("ends", b"1")
    assert [client.payloads(requester) for client in (first, second)] == [[b"1"], [b"1"]]
    first.send(b"UNSUB %b\r\n" % sids[0].encode())
    first.fence()
    reach([second], requester)
    requester.publish("ends", b"2")
    assert [client.payloads(requester) for client in (first, second)] == [[], [b"2"]]
    second.send(b"UNSUB %b\r\n" % sids[1].encode())
    requester.wait_alone("ends")
