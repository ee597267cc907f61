"""Requests between a cluster and a leaf node of another one, over a gateway and a leaf connection.

The leaf node has streams, of a domain of their own. Its server knows no gateways.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from support.launch import launcher
from support.leafpeer import LISTENING
from support.servers import REFERENCE, Kind, Server, until
from support.stress import together
from support.superclusters import SuperCluster
from support.wire import header

from .conftest import require_all
from .domains import LEAF, STREAMS, accounts, answers, api
from .members import Client, named, rows
from .storm import Requester, Responder
from .test_leafnodes import leafs

pytestmark = pytest.mark.timeout(120)

REQUESTS = 1_500
REQUESTERS = 3
REMEMBERED = 4.0
"""Seconds that a server remembers where a request has come from, at most."""
API = "$JS.leaf.API"
_streams = itertools.count(1)


class World:
    """A server `far`, the `hub` of another cluster, and its `leaf`."""

    def __init__(self, far: Server, hub: Server, leaf: Server) -> None:
        self.far, self.hub, self.leaf = far, hub, leaf


@pytest.fixture(scope="module", params=rows(3, 3), ids=named)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Servers that the tests of this module share."""
    kinds: tuple[Kind, Kind, Kind] = request.param
    require_all(kinds)
    with launcher(REFERENCE, tmp_path_factory.mktemp("leaf")) as launch:
        listening = "leafnodes { listen: '127.0.0.1:-1' }\n" + accounts("")
        made = SuperCluster(launch, [kinds[:1], kinds[1:2]], config=listening)
        host, port = made[1].wait_log(LISTENING).groups()
        remote = f"leafnodes {{ remotes [ {{ url: 'nats-leaf://a:p@{host}:{port}', account: A }} ] }}"
        config = "\n".join(("server_name: leaf", remote, LEAF, accounts(STREAMS)))
        leaf = launch("-m", "-1", "-D", config=config, kind=kinds[2])
        made.wait_mesh()
        until(lambda: len(leafs(made[1])) == len(leafs(leaf)) == 1)
        yield World(made[0], made[1], leaf)


@pytest.fixture(params=["to the leaf", "from the leaf"])
def ends(world: World, request: pytest.FixtureRequest) -> tuple[Server, Server]:
    """The requester's server, and the responder's."""
    return (world.far, world.leaf) if request.param == "to the leaf" else (world.leaf, world.far)


def test_no_answer_to_a_new_inbox_is_lost(ends: tuple[Server, Server]) -> None:
    here, there = ends
    responders = [Responder(there, "a", b"storm", b"workers") for _ in range(2)]
    requesters = [Requester(here, "a", name) for name in range(REQUESTERS)]
    with Client(here) as near, Client(there) as far:
        far.reachable_from(near)

    def ask() -> None:
        try:
            together(*(partial(each.run, b"storm", REQUESTS // REQUESTERS) for each in requesters))
        finally:
            for responder in responders:
                responder.connection.end()

    try:
        together(ask, *(responder.run for responder in responders))
    finally:
        for each in *responders, *requesters:
            each.connection.close()
    assert sum(responder.answered for responder in responders) == REQUESTS


def test_late_answers_find_their_way(world: World) -> None:
    """A server has forgotten where the request came from: interest in the inbox has come meanwhile."""
    with Client(world.far) as far, Client(world.leaf) as leaf:
        pairs = (far, leaf, "to.leaf"), (leaf, far, "to.far")
        inboxes = []
        for requester, responder, subject in pairs:
            responder.subscribe(subject)
            responder.reachable_from(requester)
        for requester, responder, subject in pairs:
            inboxes.append(requester.ask(subject))
            assert responder.next_on(subject).reply == inboxes[-1]
            responder.publish(inboxes[-1], b"now")
        time.sleep(REMEMBERED + 0.2)
        for (requester, responder, _), inbox in zip(pairs, inboxes, strict=True):
            responder.publish(inbox, b"later")
            assert [requester.next_on(inbox).payload for _ in range(2)] == [b"now", b"later"]


class Stream:
    """A stream of the leaf, and a new client `near` in the other cluster."""

    def __init__(self, world: World, stack: ExitStack) -> None:
        self.name = f"S{next(_streams)}"
        self.there = stack.enter_context(Client(world.leaf))
        first = stack.enter_context(Client(world.far))
        until(lambda: answers(first, f"{API}.INFO"))
        config = {"name": self.name, "subjects": [f"{self.name}.>"], "storage": "memory"}
        api(first, f"{API}.STREAM.CREATE.{self.name}", config)
        until(lambda: answers(first, f"{self.name}.hello"))
        api(first, f"{API}.STREAM.PURGE.{self.name}")
        self.near = stack.enter_context(Client(world.far))

    def consumer(self, name: str) -> str:
        """Make a pull consumer; return the subject of requests for messages."""
        config = {"name": name, "durable_name": name, "ack_policy": "explicit"}
        body = {"stream_name": self.name, "config": config}
        api(self.near, f"{API}.CONSUMER.CREATE.{self.name}.{name}", body)
        return f"{API}.CONSUMER.MSG.NEXT.{self.name}.{name}"


@pytest.fixture
def stream(world: World) -> Iterator[Stream]:
    with ExitStack() as stack:
        yield Stream(world, stack)


def test_publishers_are_acknowledged(stream: Stream) -> None:
    inboxes = [stream.near.ask(f"{stream.name}.{n}", b"%d" % n, header("A: b")) for n in range(200)]
    seqs = [stream.near.next_on(inbox).json["seq"] for inbox in inboxes]
    assert seqs == list(range(seqs[0], seqs[0] + 200))


def test_requests_for_messages_are_answered_at_once(stream: Stream) -> None:
    """The requester's inbox is new; it sees the subjects of the stream, and its acknowledgements arrive."""
    following = stream.consumer("c")
    for n in range(3):
        stream.there.request(f"{stream.name}.{n}", b"%d" % n)
    inbox = stream.near.ask(following, b'{"batch": 3, "no_wait": true}')
    for n in range(3):
        message = stream.near.next()
        assert (message.subject, message.payload) == (f"{stream.name}.{n}", b"%d" % n)
        assert stream.near.request(message.reply, b"+ACK").payload == b""
    assert not any(message.subject == inbox for message in stream.near.kept())
    info = api(stream.near, f"{API}.CONSUMER.INFO.{stream.name}.c")
    assert (info["num_ack_pending"], info["num_pending"]) == (0, 0)


def test_a_request_waits_for_a_message(stream: Stream) -> None:
    """One whose client has gone ends, once interest in its inbox would be known."""
    following = stream.consumer("c")
    with Client(stream.near.server) as gone:
        gone.ask(following, json.dumps({"batch": 1, "expires": 60_000_000_000}).encode())
        until(lambda: waiting(stream) == 1)
    stream.near.ask(following, json.dumps({"batch": 1, "expires": 60_000_000_000}).encode())
    until(lambda: waiting(stream) == 2)
    until(lambda: waiting(stream) == 1)
    stream.there.request(f"{stream.name}.x", b"at last")
    assert stream.near.next_on(f"{stream.name}.x").payload == b"at last"


def waiting(stream: Stream) -> int:
    """Return the number of requests that wait at the consumer."""
    info = api(stream.there, f"$JS.API.CONSUMER.INFO.{stream.name}.c")
    count: int = info["num_waiting"]  # type: ignore[assignment]
    return count
