"""Traces of messages that leaf nodes send: where they go, and what is not delivered (msgtrace.go)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support.launch import Launch
from support.leafpeer import FakeLeaf, launch_accepting
from support.servers import Server
from support.wire import Connection, connect_op, header

pytestmark = pytest.mark.timeout(60)

USERS = """
accounts {
    A { users [
        { user: all, password: p }
        { user: a, password: p, permissions { publish: ["ok.>"], subscribe: ["in.>"] } } ] }
}
"""


@pytest.fixture(scope="module")
def server(launch_shared: Launch) -> Server:
    return launch_accepting(launch_shared, config=USERS)


@pytest.fixture
def fake() -> Iterator[FakeLeaf]:
    with FakeLeaf() as fake:
        yield fake


@pytest.fixture
def client(server: Server) -> Iterator[Connection]:
    with Connection(server.address) as client:
        client.send(connect_op("all", "p", headers=True) + b"SUB > 1\r\n")
        client.fence()
        yield client


def sent(client: Connection, subject: bytes) -> bytes:
    """Return the next message of a subject."""
    while True:
        op = client.read_op()
        if op.split(b" ")[1] == subject:
            return op


@pytest.mark.parametrize("user", ["all", "a"])
def test_a_trace_goes_to_its_destination(
    server: Server, fake: FakeLeaf, client: Connection, user: str
) -> None:
    peer = fake.dial(server, user=user, **{"pass": "p"})
    peer.publish(b"ok.x", b"message", header=header("Nats-Trace-Dest: ok.trace"))
    assert sent(client, b"ok.x").endswith(b"message\r\n")
    trace = json.loads(sent(client, b"ok.trace").split(b"\r\n")[1])
    ingress = trace["events"][0]
    assert [ingress[name] for name in ("type", "kind", "acc", "subj")] == ["in", 4, "A", "ok.x"]
    assert ingress["name"] == fake.name


def test_a_message_that_is_only_traced_is_not_delivered(
    server: Server, fake: FakeLeaf, client: Connection
) -> None:
    peer = fake.dial(server, user="a", **{"pass": "p"})
    asked = header("Nats-Trace-Dest: ok.trace", "Nats-Trace-Only: true")
    peer.publish(b"ok.only", b"message", header=asked)
    peer.publish(b"ok.end")
    seen = {client.read_op().split(b" ")[1] for _ in range(2)}
    assert seen == {b"ok.trace", b"ok.end"}


@pytest.mark.parametrize("destination", ["no.trace", "in.trace", "$JS.API.INFO"])
def test_permissions_are_for_the_destination_too(
    server: Server, fake: FakeLeaf, client: Connection, destination: str
) -> None:
    peer = fake.dial(server, user="a", **{"pass": "p"})
    peer.publish(b"ok.x", b"message", header=header(f"Nats-Trace-Dest: {destination}"))
    error = f"-ERR 'Permissions Violation for Publish to \"{destination}\"'\r\n".encode()
    assert peer.fence() == [error]
    peer.publish(b"ok.end")
    assert client.read_op().startswith(b"MSG ok.end")
