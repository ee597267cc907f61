"""Two servers of every two kinds: a client of one has what a client of the other publishes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from support.clusters import Cluster
from support.servers import until
from support.wire import header

from .members import Client

pytestmark = pytest.mark.timeout(120)

NAMED = header("A: b", "A: c")
MANY = 400


@pytest.fixture
def clients(pair: Cluster, ends: tuple[int, int]) -> Iterator[tuple[Client, Client]]:
    """A publisher and a subscriber of one account at different servers."""
    with Client(pair[ends[0]]) as publisher, Client(pair[ends[1]]) as subscriber:
        yield publisher, subscriber


def test_messages_arrive_once_and_in_order(clients: tuple[Client, Client]) -> None:
    publisher, subscriber = clients
    subscriber.subscribe("order.*")
    subscriber.reachable_from(publisher)
    sizes = [0, 1, 100, 5_000, 70_000, 900_000, *range(MANY)]
    for n, size in enumerate(sizes):
        publisher.publish(f"order.{n}", b"x" * size)
    heard = subscriber.heard(publisher)
    assert [(m.subject, len(m.payload), m.reply) for m in heard] == [
        (f"order.{n}", size, "") for n, size in enumerate(sizes)
    ]


def test_each_subscription_that_matches_hears(clients: tuple[Client, Client]) -> None:
    publisher, subscriber = clients
    sids = {subject: subscriber.subscribe(subject) for subject in ("w.a.b", "w.*.b", "w.>", "*.*.*", "w.a.c")}
    subscriber.reachable_from(publisher)
    publisher.publish("w.a.b", b"x", "reply.to")
    publisher.publish("w.a", b"y")
    heard = [(m.subject, m.sid, m.reply, m.payload) for m in subscriber.heard(publisher)]
    assert sorted(heard[:4]) == sorted(
        ("w.a.b", sids[subject], "reply.to", b"x") for subject in ("w.a.b", "w.*.b", "w.>", "*.*.*")
    )
    assert heard[4:] == [("w.a", sids["w.>"], "", b"y")]


def test_headers(pair: Cluster, ends: tuple[int, int], clients: tuple[Client, Client]) -> None:
    publisher, subscriber = clients
    with Client(pair[ends[1]], headers=False) as plain:
        for each in subscriber, plain:
            each.subscribe("h")
            each.reachable_from(publisher)
        publisher.publish("h", b"body", "re", NAMED)
        assert [(m.header, m.payload, m.reply) for m in subscriber.heard(publisher)] == [
            (NAMED, b"body", "re")
        ]
        assert [(m.header, m.payload, m.reply) for m in plain.heard(publisher)] == [(b"", b"body", "re")]


def test_only_who_asks_hears(pair: Cluster, clients: tuple[Client, Client]) -> None:
    """The same subject in another account, and one that the subscriber has left."""
    publisher, subscriber = clients
    with Client(subscriber.server, "b") as other, Client(publisher.server, "b") as beside:
        other.subscribe("private")
        subscriber.subscribe("private")
        sid = subscriber.subscribe("left")
        subscriber.send(f"UNSUB {sid}\r\n".encode())
        subscriber.reachable_from(publisher)
        other.reachable_from(beside)
        for subject in "private", "left":
            publisher.publish(subject, b"x")
        assert subscriber.payloads(publisher) == [b"x"]
        assert other.payloads(beside) == []


def test_a_limit_ends_a_subscription(clients: tuple[Client, Client]) -> None:
    publisher, subscriber = clients
    sid = subscriber.subscribe("limited")
    subscriber.send(f"UNSUB {sid} 3\r\n".encode())
    subscriber.reachable_from(publisher)
    for n in range(10):
        publisher.publish("limited", b"%d" % n)
    assert subscriber.payloads(publisher) == [b"0", b"1", b"2"]
    publisher.wait_alone("limited")


def test_a_limit_set_over_time(clients: tuple[Client, Client]) -> None:
    """The messages before it count."""
    publisher, subscriber = clients
    sid = subscriber.subscribe("limited.later")
    subscriber.reachable_from(publisher)
    publisher.publish("limited.later", b"0")
    publisher.publish("limited.later", b"1")
    assert subscriber.payloads(publisher) == [b"0", b"1"]
    subscriber.send(f"UNSUB {sid} 3\r\n".encode())
    subscriber.fence()
    for n in range(2, 10):
        publisher.publish("limited.later", b"%d" % n)
    assert subscriber.payloads(publisher) == [b"2"]


def test_a_client_without_echo(pair: Cluster, ends: tuple[int, int]) -> None:
    """It hears what others publish at either server, and nothing of its own."""
    with (
        Client(pair[ends[0]]) as beside,
        Client(pair[ends[1]]) as there,
        Client(pair[ends[0]]) as quiet,
        Client(pair[ends[0]], echo=False) as deaf,
    ):
        for client in beside, there, quiet, deaf:
            client.subscribe("echo")
        for client in there, deaf:
            client.reachable_from(beside if client is there else there)
        deaf.publish("echo", b"own")
        for client in beside, quiet, there:
            assert client.next().payload == b"own"
        there.publish("echo", b"there")
        assert deaf.next().payload == b"there"
        beside.publish("echo", b"beside")
        assert deaf.next().payload == b"beside"
        assert deaf.payloads(beside, there) == []


def test_mappings_apply_once(pair: Cluster, clients: tuple[Client, Client]) -> None:
    publisher, subscriber = clients
    with Client(publisher.server) as beside:
        for client in beside, subscriber:
            for subject in "map.x", "mapped.x", "twice.x":
                client.subscribe(subject)
            client.reachable_from(publisher)
        publisher.publish("map.x", b"1")
        publisher.publish("mapped.x", b"2")
        for client in beside, subscriber:
            assert [(m.subject, m.payload) for m in client.heard(publisher)] == [
                ("mapped.x", b"1"),
                ("twice.x", b"2"),
            ]


def test_accounts_are_alike(pair: Cluster, ends: tuple[int, int]) -> None:
    """Each account has its own connection of the pool, or one of its own."""
    with ExitStack() as stack:
        for user in "abcp":
            publisher = stack.enter_context(Client(pair[ends[0]], user))
            subscriber = stack.enter_context(Client(pair[ends[1]], user))
            subscriber.subscribe("foo")
            subscriber.reachable_from(publisher)
            for n in range(5):
                publisher.publish("foo", b"%s %d" % (user.encode(), n))
            assert subscriber.payloads(publisher) == [b"%s %d" % (user.encode(), n) for n in range(5)]


def test_routes_count_their_messages(pair: Cluster, clients: tuple[Client, Client]) -> None:
    publisher, subscriber = clients
    here = [server is publisher.server for server in pair.servers].index(True)

    def counted() -> list[int]:
        sent = sum(route["out_msgs"] for route in pair.routes(here))
        return [sent, sum(route["in_msgs"] for route in pair.routes(1 - here))]

    subscriber.subscribe("counted")
    subscriber.reachable_from(publisher)
    before = counted()
    for _ in range(MANY):
        publisher.publish("counted", b"x" * 10)
    assert len(subscriber.heard(publisher)) == MANY
    until(lambda: all(now - then >= MANY for now, then in zip(counted(), before, strict=True)))
