"""Traces of messages that come and go over routes: hops, what the peer is sent, what the trace says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support import routepairs
from support.accounts import Member
from support.clusters import launch_routed
from support.launch import Launch
from support.routepairs import BLOCK, CONFIG, FORMS, Pair
from support.routepeer import Fake, messages
from support.servers import Server
from support.wire import header

pytestmark = pytest.mark.timeout(60)

CLIENT, ROUTER = 0, 1
TRACED = CONFIG.replace("service: svc }", "service: svc, allow_trace: true }", 1)


@pytest.fixture(scope="module")
def server(launch_shared: Launch) -> Server:
    return launch_routed(launch_shared, "-D", config=TRACED, cluster=BLOCK)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with Fake() as fake:
        yield fake


@pytest.fixture(params=FORMS)
def pair(server: Server, fake: Fake, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with routepairs.pair(server, fake, request.param) as pair:
        yield pair


@pytest.fixture
def pooled(server: Server, fake: Fake) -> Iterator[Pair]:
    with routepairs.pair(server, fake, "pool") as pair:
        yield pair


def hpub(subject: bytes, *lines: str, reply: bytes = b"") -> bytes:
    """Return an HPUB line with its body "hi"."""
    block = header(*lines)
    return b"HPUB %b %b%d %d\r\n%bhi" % (
        subject,
        reply + b" " * bool(reply),
        len(block),
        len(block) + 2,
        block,
    )


def traces(member: Member, count: int = 1) -> list[dict[str, Any]]:
    """Wait for so many messages with sid 9, which are traces; leave out what differs between runs."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        line, _, body = member.connection.read_op().partition(b"\r\n")
        words = line.split()
        if words[0] not in (b"MSG", b"HMSG") or words[2] != b"9":
            continue
        trace = json.loads(body)
        assert set(trace.pop("server")) >= {"name", "id", "cluster"}
        for event in trace["events"]:
            del event["ts"]
            event.pop("cid", None)
        found.append(trace)
    return found


def sent(pair: Pair, *lines: str, subject: bytes = b"foo") -> list[bytes]:
    """Have the client publish, and return the messages that the peer gets."""
    pair.client.connection.send(hpub(subject, *lines) + b"\r\n")
    return messages(pair.after())


def test_a_hop_is_made(pair: Pair, fake: Fake) -> None:
    pair.peer.tell(b"RS+", pair.account, b"foo")
    pair.client.say(b"SUB dest 9", b"SUB foo 1")
    (message,) = sent(pair, "A: 1", "Nats-Trace-Dest: dest")
    assert message.endswith(header("A: 1", "Nats-Trace-Dest: dest", "Nats-Trace-Hop: 1") + b"hi\r\n")
    (trace,) = traces(pair.client)
    assert trace == {
        "request": {
            "header": {"A": ["1"], "Nats-Trace-Dest": ["dest"]},
            "msgsize": trace["request"]["msgsize"],
        },
        "hops": 1,
        "events": [
            {"type": "in", "kind": CLIENT, "acc": pair.account.decode(), "subj": "foo"},
            {"type": "eg", "kind": CLIENT, "sub": "foo"},
            {"type": "eg", "kind": ROUTER, "name": fake.name, "hop": "1"},
        ],
    }


def test_a_hop_is_replaced(pooled: Pair) -> None:
    """A client has no hop before it, whatever it says."""
    pooled.peer.tell(b"RS+", b"A", b"foo")
    pooled.client.say(b"SUB dest 9")
    (message,) = sent(pooled, "Nats-Trace-Hop: 7", "Nats-Trace-Dest: dest", "B: 2")
    assert message.count(b"Nats-Trace-Hop") == 1
    assert b"Nats-Trace-Hop: 1\r\n" in message


def test_traced_only(pooled: Pair, fake: Fake) -> None:
    """The peer is sent the message all the same: it notes what it would do."""
    pooled.peer.tell(b"RS+", b"A", b"foo")
    pooled.client.say(b"SUB dest 9", b"SUB foo 1")
    (message,) = sent(pooled, "Nats-Trace-Dest: dest", "Nats-Trace-Only: true")
    assert b"Nats-Trace-Only: true\r\n" in message
    (trace,) = traces(pooled.client)
    assert [event["type"] for event in trace["events"]] == ["in", "eg", "eg"]
    assert trace["events"][2] == {"type": "eg", "kind": ROUTER, "name": fake.name, "hop": "1"}
    assert trace["hops"] == 1


def test_an_old_peer(server: Server, fake: Fake) -> None:
    peer = fake.pooled(server, b"A", proto=2)
    peer.tell(b"RS+", b"A", b"foo")
    with Member(server, "a") as client:
        client.say(b"SUB dest 9")
        pair = Pair(client, peer, b"A")
        assert len(sent(pair, "Nats-Trace-Dest: dest")) == 1
        assert not sent(pair, "Nats-Trace-Dest: dest", "Nats-Trace-Only: 1")
        told, only = traces(client, 2)
        error = "Message delivered but remote does not support message tracing so no trace event generated"
        error += " from there"
        assert told["events"][1] == {
            "type": "eg",
            "kind": ROUTER,
            "name": fake.name,
            "hop": "1",
            "error": error,
        }
        error = "Not delivered because remote does not support message tracing"
        assert only["events"][1] == {
            "type": "eg",
            "kind": ROUTER,
            "name": fake.name,
            "hop": "1",
            "error": error,
        }
        routepairs.unsubscribe(client)


def test_what_a_peer_sends_is_traced(pair: Pair, fake: Fake) -> None:
    pair.client.say(b"SUB dest 9", b"SUB foo 1", b"SUB foo g 2")
    pair.after()
    block = header("Nats-Trace-Dest: dest", "Nats-Trace-Hop: 3")
    pair.peer.send(pair.line(b"HMSG", b"foo | g %d %d" % (len(block), len(block) + 2)) + block + b"hi\r\n")
    pair.peer.fence()
    (trace,) = traces(pair.client)
    assert trace["events"] == [
        {"type": "in", "kind": ROUTER, "name": fake.name, "acc": pair.account.decode(), "subj": "foo"},
        {"type": "eg", "kind": CLIENT, "sub": "foo"},
        {"type": "eg", "kind": CLIENT, "sub": "foo", "queue": "g"},
    ]
    assert "hops" not in trace


def test_what_a_peer_sends_may_be_traced_only(pooled: Pair) -> None:
    pooled.client.say(b"SUB dest 9", b"SUB foo 1")
    pooled.after()
    block = header("Nats-Trace-Dest: dest", "Nats-Trace-Only: 1")
    pooled.peer.send(b"HMSG A foo %d %d\r\n" % (len(block), len(block) + 2) + block + b"hi\r\n")
    pooled.peer.fence()
    (trace,) = traces(pooled.client)
    assert [event["type"] for event in trace["events"]] == ["in", "eg"]
