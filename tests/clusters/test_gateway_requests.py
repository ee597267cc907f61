"""Requests from one cluster to another, over gateways: no answer is lost, however new the inbox is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from support.launch import launcher
from support.servers import KINDS, REFERENCE, Kind, Server, selected, until
from support.stress import together
from support.superclusters import SuperCluster
from support.wire import header

from .conftest import require_all
from .members import ACCOUNTS, OLD, Client
from .storm import Requester, Responder

pytestmark = pytest.mark.timeout(120)

REQUESTS = 6_000
REQUESTERS = 4
RESPONDERS = 2
"""Clients at each server of the cluster."""
REMEMBERED = 4.0
"""Seconds that a server remembers where a request has come from, at most."""

Pair = tuple[Kind, Kind]
Ends = tuple[list[Server], list[Server]]
LOOP, THREADS = KINDS["gnats-loop"], KINDS["gnats-threads"]
WORLDS: list[tuple[Pair, Pair]] = [
    ((THREADS, LOOP), (LOOP, THREADS)),
    ((THREADS, LOOP), (REFERENCE, REFERENCE)),
    ((THREADS, REFERENCE), (LOOP, REFERENCE)),
    ((THREADS, LOOP), (OLD, OLD)),
    ((THREADS, OLD), (LOOP, OLD)),
]
"""The kinds of both clusters: alone, facing the other, and mixed."""


def named(world: tuple[Pair, Pair]) -> str:
    return " to ".join("+".join(kind.name for kind in pair) for pair in world)


@pytest.fixture(scope="module", params=WORLDS, ids=named)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuperCluster]:
    """Two clusters of two servers each. The tests of the module share them."""
    kinds: tuple[Pair, Pair] = request.param
    if not {*kinds[0], *kinds[1]} - {OLD} <= set(selected()):
        pytest.skip("a kind is not selected")
    require_all((*kinds[0], *kinds[1]))
    with launcher(REFERENCE, tmp_path_factory.mktemp("world")) as launch:
        made = SuperCluster(launch, kinds, config=ACCOUNTS)
        made.wait_mesh()
        yield made


@pytest.fixture(params=[(0, 1), (1, 0)], ids=["to the second", "to the first"])
def ends(world: SuperCluster, request: pytest.FixtureRequest) -> Ends:
    """The servers of the requesters' cluster, and those of the responders'."""
    here, there = request.param
    return world.clusters[here], world.clusters[there]


STORMS = {"same account": (b"storm", "a", b"storm"), "import": (b"ask.storm", "b", b"svc.storm")}


@pytest.mark.parametrize(("asked", "user", "served"), STORMS.values(), ids=STORMS.keys())
def test_no_answer_to_a_new_inbox_is_lost(ends: Ends, asked: bytes, user: str, served: bytes) -> None:
    """Clients at both servers of a cluster ask, a queue group at both servers of the other one answers.

    Of the first requests over a service import nats-server may send some with a reply that is not mapped,
    before it tells the other cluster that it wants responses: it gets one in advance. Two clusters of
    nats-server alone lose answers to such requests as well.
    """
    here, there = ends
    responders = [Responder(server, "a", served, b"workers") for server in there for _ in range(RESPONDERS)]
    requesters = [
        Requester(server, user, name) for name, server in enumerate(here * (REQUESTERS // len(here)))
    ]
    with ExitStack() as stack:
        near = [stack.enter_context(Client(server)) for server in here]
        for server in there:
            far = stack.enter_context(Client(server))
            far.reachable_from(*near)  # and so are the responders, of the same account

    def ask() -> None:
        try:
            for each, server in zip(requesters, here, strict=False):
                if server.kind.is_reference:
                    each.run(asked, 1)
            together(*(partial(each.run, asked, REQUESTS // REQUESTERS) for each in requesters))
        finally:
            for responder in responders:
                responder.connection.end()

    try:
        together(ask, *(responder.run for responder in responders))
    finally:
        for each in *responders, *requesters:
            each.connection.close()
    assert sum(responder.answered for responder in responders) >= REQUESTS // REQUESTERS * REQUESTERS


def test_a_request_and_its_answers_cross(ends: Ends) -> None:
    """From any server to any other one: with headers, several answers, and one that asks in turn."""
    here, there = ends
    for asked_at in here:
        for served_at in there:
            with Client(asked_at) as requester, Client(served_at) as responder:
                responder.subscribe("svc.*")
                responder.reachable_from(requester)
                inbox = requester.ask("svc.x", b"how?", header("A: b"))
                request = responder.next_on("svc.x")
                assert (request.payload, request.header, request.reply) == (b"how?", header("A: b"), inbox)
                responder.publish(inbox, b"so", "svc.back", header("C: d"))
                responder.publish(inbox, b"and so")
                answers = requester.next_on(inbox), requester.next_on(inbox)
                assert [answer.payload for answer in answers] == [b"so", b"and so"]
                assert (answers[0].header, answers[0].reply) == (header("C: d"), "svc.back")
                requester.publish("svc.back", b"thanks")
                assert responder.next_on("svc.back").payload == b"thanks"


def test_late_answers_find_their_way(world: SuperCluster) -> None:
    """A server has forgotten where the request came from: interest in the inbox has come meanwhile."""
    with ExitStack() as stack:
        clients = [[stack.enter_context(Client(server)) for server in servers] for servers in world.clusters]
        asked: list[list[str]] = []
        for number, (requesters, responders) in enumerate((clients, clients[::-1])):
            subject = f"late.{number}"
            for responder in responders:
                responder.subscribe(subject)
                responder.reachable_from(*requesters)
            asked.append([requester.ask(subject) for requester in requesters])
            for responder in responders:
                assert {responder.next_on(subject).reply for _ in requesters} == set(asked[-1])
        time.sleep(REMEMBERED + 0.2)
        for (requesters, responders), inboxes in zip((clients, clients[::-1]), asked, strict=True):
            for number, responder in enumerate(responders):
                for inbox in inboxes:
                    responder.publish(inbox, b"%d" % number)
            for requester, inbox in zip(requesters, inboxes, strict=True):
                assert {requester.next_on(inbox).payload for _ in responders} == {b"0", b"1"}


def test_another_client_may_answer(ends: Ends) -> None:
    """It was not asked: its message goes by interest, and to subscribers of its own cluster as well."""
    here, there = ends
    with Client(here[0]) as requester, Client(there[0]) as responder, Client(there[1]) as other:
        responder.subscribe("task")
        other.subscribe("_INBOX.>")
        responder.reachable_from(requester)
        requester.reachable_from(other)
        inbox = requester.ask("task")
        assert responder.next_on("task").reply == inbox

        def answered() -> bool:
            other.publish(inbox, b"done")
            assert other.next_on(inbox).payload == b"done"
            requester.fence()
            return any(message.subject == inbox for message in requester.kept())

        until(answered)
