"""Queue groups over many messages: each goes to one member of each group, and all members get their share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from support.exchange import new_word
from support.servers import Server
from support.wire import Connection

from .cases import QUIET

pytestmark = pytest.mark.timeout(60)

MESSAGES = 3000


@pytest.fixture
def subject() -> bytes:
    """A unique subject."""
    return b"queues." + new_word()


@pytest.fixture
def connections(server: Server) -> Iterator[list[Connection]]:
    """Eight quiet connections, the last one to publish."""
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(server.address)) for _ in range(8)]
        for connection in connections:
            connection.send(QUIET)
        yield connections


def publish(connection: Connection, subject: bytes, first: int = 0, count: int = MESSAGES) -> None:
    """Publish `count` messages numbered from `first`, and wait until the server has handled them."""
    connection.send(
        b"".join(b"PUB %b 6\r\n%06d\r\n" % (subject, number) for number in range(first, first + count))
    )
    connection.fence()


def subscribe(connection: Connection, line: bytes) -> None:
    connection.send(line)
    connection.fence()


def received(connection: Connection) -> list[tuple[bytes, int]]:
    """Return (sid, number) of every message received."""
    messages = [op.split(b"\r\n") for op in connection.fence()]
    return [(head.split()[2], int(body)) for head, body, _ in messages]


def numbers(connections: list[Connection]) -> list[list[int]]:
    return [[number for _, number in received(connection)] for connection in connections]


def assert_fair(counts: list[int], expected: float) -> None:
    """Require that each count is within six standard deviations of a fair choice."""
    margin = 6 * expected**0.5
    assert all(abs(count - expected) < margin for count in counts), counts


def test_each_message_goes_to_one_member_in_order_and_fairly(
    connections: list[Connection], subject: bytes
) -> None:
    *members, publisher = connections
    for member in members:
        subscribe(member, b"SUB %b q 1\r\n" % subject)
    publish(publisher, subject)
    got = numbers(members)
    assert sorted(number for numbers in got for number in numbers) == list(range(MESSAGES))
    assert all(numbers == sorted(numbers) for numbers in got)
    assert_fair([len(numbers) for numbers in got], MESSAGES / len(members))


def test_members_on_one_connection_share(connections: list[Connection], subject: bytes) -> None:
    member, publisher = connections[0], connections[-1]
    subscribe(member, b"".join(b"SUB %b q %d\r\n" % (subject, sid) for sid in range(4)))
    publish(publisher, subject)
    got = received(member)
    assert [number for _, number in got] == list(range(MESSAGES))
    counts = Counter(sid for sid, _ in got)
    assert len(counts) == 4
    assert_fair(list(counts.values()), MESSAGES / 4)


def test_share_is_by_subscription_not_by_connection(connections: list[Connection], subject: bytes) -> None:
    many, one, publisher = connections[0], connections[1], connections[-1]
    subscribe(many, b"".join(b"SUB %b q %d\r\n" % (subject, sid) for sid in range(3)))
    subscribe(one, b"SUB %b q 1\r\n" % subject)
    publish(publisher, subject)
    got = numbers([many, one])
    assert sorted(got[0] + got[1]) == list(range(MESSAGES))
    assert_fair([len(got[1])], MESSAGES / 4)


def test_groups_and_plain_subscribers_each_get_all(connections: list[Connection], subject: bytes) -> None:
    a, b, c, d, plain, *_, publisher = connections
    for member, queue in ((a, b"q"), (b, b"q"), (c, b"r"), (d, b"r")):
        subscribe(member, b"SUB %b %b 1\r\n" % (subject, queue))
    subscribe(plain, b"SUB %b 1\r\n" % subject)
    publish(publisher, subject)
    got = numbers([a, b, c, d, plain])
    everything = list(range(MESSAGES))
    assert sorted(got[0] + got[1]) == sorted(got[2] + got[3]) == got[4] == everything
    assert_fair([len(numbers) for numbers in got[:4]], MESSAGES / 2)


def test_a_group_spans_overlapping_subjects(connections: list[Connection], subject: bytes) -> None:
    """Literal and wildcard subscriptions with the same queue name are members of one group."""
    literal, star, full, *_, publisher = connections
    subscribe(literal, b"SUB %b.x q 1\r\n" % subject)
    subscribe(star, b"SUB %b.* q 1\r\n" % subject)
    subscribe(full, b"SUB %b.> q 1\r\n" % subject)
    publish(publisher, subject + b".x")
    got = numbers([literal, star, full])
    assert sorted(got[0] + got[1] + got[2]) == list(range(MESSAGES))
    assert_fair([len(numbers) for numbers in got], MESSAGES / 3)


def test_member_that_disconnects_is_replaced(connections: list[Connection], subject: bytes) -> None:
    leaving, staying, publisher = connections[0], connections[1], connections[-1]
    for member in (leaving, staying):
        subscribe(member, b"SUB %b q 1\r\n" % subject)
    publish(publisher, subject)
    before = numbers([leaving, staying])
    assert sorted(before[0] + before[1]) == list(range(MESSAGES))
    assert all(before)
    leaving.end()
    assert leaving.rest() == b""
    publish(publisher, subject)
    assert numbers([staying]) == [list(range(MESSAGES))]


def test_member_that_unsubscribes_itself_gives_the_rest_to_others(
    connections: list[Connection], subject: bytes
) -> None:
    limited, other, publisher = connections[0], connections[1], connections[-1]
    subscribe(limited, b"SUB %b q 1\r\nUNSUB 1 100\r\n" % subject)
    subscribe(other, b"SUB %b q 1\r\n" % subject)
    publish(publisher, subject)
    got = numbers([limited, other])
    assert len(got[0]) == 100
    assert sorted(got[0] + got[1]) == list(range(MESSAGES))
