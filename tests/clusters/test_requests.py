"""Requests and queue groups of clients at two servers of every two kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain

import pytest
from support.clusters import Cluster
from support.servers import Server
from support.stress import together
from support.wire import header

from .members import Client
from .storm import Requester, Responder

pytestmark = pytest.mark.timeout(120)

MANY = 400
REQUESTS = 5_000
REQUESTERS = 8
RESPONDERS = 3


@pytest.fixture
def clients(pair: Cluster, ends: tuple[int, int]) -> Iterator[tuple[Client, Client]]:
    """Two clients of one account at different servers."""
    with Client(pair[ends[0]]) as here, Client(pair[ends[1]]) as there:
        yield here, there


def test_a_request_is_answered(clients: tuple[Client, Client]) -> None:
    here, there = clients
    there.subscribe("svc")
    there.reachable_from(here)
    inbox = here.ask("svc", b"how?", header("A: b"))
    request = there.next()
    assert (request.payload, request.header, request.reply) == (b"how?", header("A: b"), inbox)
    there.publish(request.reply, b"so", "ask.back", header("C: d"))
    answer = here.next_on(inbox)
    assert (answer.payload, answer.header, answer.reply) == (b"so", header("C: d"), "ask.back")


def test_nobody_serves(pair: Cluster, clients: tuple[Client, Client]) -> None:
    """The requester hears so at once: before, between and after those who serve."""
    here, there = clients
    here.wait_alone("sometimes")
    for _ in range(3):
        sid = there.subscribe("sometimes")
        there.reachable_from(here)
        inbox = here.ask("sometimes")
        there.publish(there.next_on("sometimes").reply, b"me")
        assert here.next_on(inbox).payload == b"me"
        there.send(f"UNSUB {sid}\r\n".encode())
        here.wait_alone("sometimes")


def test_who_serves_leaves(pair: Cluster, clients: tuple[Client, Client]) -> None:
    here, there = clients
    with Client(there.server) as brief:
        brief.subscribe("brief.*")
        brief.reachable_from(here)
    here.wait_alone("brief.x")


def test_a_subscriber_that_is_deaf_to_itself_serves_nobody(pair: Cluster, ends: tuple[int, int]) -> None:
    with Client(pair[ends[0]], echo=False) as here, Client(pair[ends[1]]) as there:
        here.subscribe("mine")
        here.reachable_from(there)
        assert here.request("mine").status == "503"
        inbox = there.ask("mine", b"?")
        here.publish(here.next_on("mine").reply, b"!")
        assert there.next_on(inbox).payload == b"!"


def group(stack: ExitStack, *servers: Server, subject: str = "q.*") -> list[Client]:
    """Connect a member of the queue group g at each of the servers."""
    members = [stack.enter_context(Client(server)) for server in servers]
    for member in members:
        member.subscribe(subject, "g")
    return members


def delivered(publisher: Client, members: list[Client], count: int, subject: str = "q.x") -> list[int]:
    """Publish to a group; check that each message came once. Return how many each member has got."""
    for member in members:
        member.reachable_from(publisher)
    for n in range(count):
        publisher.publish(subject, b"%d" % n)
    got = [member.payloads(publisher) for member in members]
    assert Counter(chain.from_iterable(got)) == Counter(b"%d" % n for n in range(count))
    for payloads in got:
        assert payloads == sorted(payloads, key=int)
    return [len(payloads) for payloads in got]


def test_a_group_at_both_servers_shares(pair: Cluster, clients: tuple[Client, Client]) -> None:
    """Remote members weigh as many as they are."""
    here, there = clients
    with ExitStack() as stack:
        members = group(stack, here.server, there.server, there.server, there.server)
        counts = delivered(here, members, MANY)
        assert MANY * 0.1 < counts[0] < MANY * 0.45
        assert min(counts[1:]) > MANY * 0.1


def test_a_group_elsewhere_shares(pair: Cluster, clients: tuple[Client, Client]) -> None:
    here, there = clients
    with ExitStack() as stack:
        members = group(stack, there.server, there.server)
        assert min(delivered(here, members, MANY)) > MANY * 0.3


def test_several_groups_each_get_one(pair: Cluster, clients: tuple[Client, Client]) -> None:
    here, there = clients
    with ExitStack() as stack:
        members = [stack.enter_context(Client(server)) for server in (here.server, there.server)]
        for member in members:
            for subject, queue in ("m.x", "g1"), ("m.*", "g2"), ("m.>", "g3"), ("m.x", ""):
                member.subscribe(subject, queue)
            member.reachable_from(here)
        for n in range(MANY):
            here.publish("m.x", b"%d" % n)
        heard = [member.heard(here) for member in members]
        by_sid = [Counter(message.sid for message in each) for each in heard]
        plain = max(by_sid[0], key=int)
        assert by_sid[0][plain] == by_sid[1][plain] == MANY
        for sid in by_sid[0].keys() - {plain}:
            assert by_sid[0][sid] + by_sid[1][sid] == MANY
            assert min(by_sid[0][sid], by_sid[1][sid]) > MANY * 0.2


def test_a_group_loses_members_under_way(pair: Cluster, clients: tuple[Client, Client]) -> None:
    """Nothing comes twice, and nothing is lost: another member takes it while there is one."""
    here, there = clients
    with ExitStack() as stack:
        members = [stack.enter_context(Client(each.server)) for each in (here, there, there)]
        sids = [member.subscribe("leaving", "g") for member in members]
        for member in members:
            member.reachable_from(here)
        for n in range(MANY):
            here.publish("leaving", b"%d" % n)
            if n == MANY // 2:
                members[2].send(f"UNSUB {sids[2]}\r\n".encode())
        got = Counter(chain.from_iterable(member.payloads(here) for member in members))
        assert got == Counter(b"%d" % n for n in range(MANY))
        for member, sid in zip(members[:2], sids[:2], strict=True):
            member.send(f"UNSUB {sid}\r\n".encode())
        here.wait_alone("leaving")


STORMS = {"same account": (b"storm", "a", b"storm"), "import": (b"ask.storm", "b", b"svc.storm")}


@pytest.mark.parametrize(("asked", "user", "served"), STORMS.values(), ids=STORMS.keys())
def test_no_answer_to_a_new_inbox_is_lost(
    pair: Cluster, ends: tuple[int, int], asked: bytes, user: str, served: bytes
) -> None:
    """Clients at one server ask, on any of its threads, and a queue group at the other answers.

    Of the first requests over a service import nats-server may send some before it tells the other server
    that it wants responses: it gets one in advance.
    """
    responders = [Responder(pair[ends[1]], "a", served, b"workers") for _ in range(RESPONDERS)]
    requesters = [Requester(pair[ends[0]], user, name) for name in range(REQUESTERS)]
    with Client(pair[ends[0]]) as here, Client(pair[ends[1]]) as there:
        there.reachable_from(here)  # and so are the responders, of the same account
    count = REQUESTS // REQUESTERS

    def ask() -> None:
        try:
            if pair[ends[0]].kind.is_reference:
                requesters[0].run(asked, 1)
            together(*(partial(requester.run, asked, count) for requester in requesters))
        finally:
            for responder in responders:
                responder.connection.end()

    jobs: list[Callable[[], None]] = [responder.run for responder in responders]
    try:
        together(ask, *jobs)
    finally:
        for each in *responders, *requesters:
            each.connection.close()
    assert sum(responder.answered for responder in responders) >= count * REQUESTERS
    assert min(responder.answered for responder in responders) > count * REQUESTERS // RESPONDERS // 3
