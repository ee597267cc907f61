"""Leaf nodes that name mapped replies, `_GR_.<cluster>.<server>.<reply>`, as other clusters do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from support.caller import Caller
from support.launch import Launch
from support.leafpeer import FakeLeaf, launch_accepting
from support.servers import Server

pytestmark = pytest.mark.timeout(60)

CONFIG = """
accounts { A { users: [
    { user: a, password: p },
    { user: l, password: p, permissions: { publish: [svc, "pub.>"], subscribe: ["sub.>"] } } ] } }
"""
MAPPED = b"_GR_.aaaaaa.bbbbbb."


@pytest.fixture
def server(launch: Launch) -> Server:
    server = launch_accepting(launch, config=CONFIG)
    if server.kind.is_reference:
        pytest.skip("the reference sends answers to whatever a leaf node names")
    return server


@pytest.fixture
def clients(server: Server) -> Iterator[list[Caller]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Caller(server, "a", "p", f"_INBOX.{name}")) for name in "xy"]


@pytest.fixture
def fake() -> Iterator[FakeLeaf]:
    with FakeLeaf() as fake:
        yield fake


@pytest.mark.parametrize("reply", [b"orders.new", b"x" * 60_000], ids=["another subject", "long"])
def test_a_responder_can_still_publish_to_what_the_leaf_may_not_subscribe_to(
    server: Server, clients: list[Caller], fake: FakeLeaf, reply: bytes
) -> None:
    responder, listener = clients
    responder.subscribe("svc")
    listener.subscribe("orders.new")
    peer = fake.dial(server, user="l", **{"pass": "p"})
    peer.publish(b"svc", b"", to=MAPPED + reply)
    peer.fence()
    assert responder.next_on("svc").reply == reply.decode()
    for number in range(3):
        responder.publish("orders.new", b"%d" % number)
        assert listener.next_on("orders.new").payload == b"%d" % number


@pytest.mark.parametrize("subject", [MAPPED + b"secret", b"$GR.secret", b"_GR_.secret"])
def test_a_leaf_node_that_says_it_is_the_hub_sends_what_it_may(
    server: Server, clients: list[Caller], fake: FakeLeaf, subject: bytes
) -> None:
    listener, _ = clients
    listener.subscribe(">")
    peer = fake.dial(server, user="l", is_hub=True, **{"pass": "p"})
    peer.publish(subject, b"")
    peer.publish(b"pub.allowed", b"")
    peer.fence()
    assert listener.next().subject == "pub.allowed"
