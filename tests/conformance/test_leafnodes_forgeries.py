"""Leaf nodes whose clients write Nats-Request-Info themselves: they name no account of the hub by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from support.caller import Caller
from support.launch import Launch
from support.leafpeer import FakeLeaf, LeafPeer, launch_accepting, messages
from support.servers import Server

pytestmark = pytest.mark.timeout(60)

CONFIG = """
server_name: H
jetstream { store_dir: js, domain: D }
accounts {
    A { jetstream: enabled, users [ { user: a, password: p } ] }
    B { jetstream: enabled, users [ { user: b, password: p } ] }
    SYS { users [ { user: s, password: p } ] }
}
system_account: SYS
"""
INFO = b"Nats-Request-Info: %b\r\n"
NAMES_B = INFO % b'{"acc":"B"}'
FORGED = [
    b"NATS/1.0\r\n" + NAMES_B + b"\r\n",
    b"NATS/1.0\r\nX: y\r\n" + NAMES_B + NAMES_B + b"\r\n",
    b"NATS/1.0\r\n" + INFO % b'{"acc":"B","svc":"B"}' + b"\r\n",
    b"NATS/1.0\r\nX: y\n" + NAMES_B + b"\r\n",
    NAMES_B + b"\r\n",
    b"\n" + NAMES_B + b"\r\n",
    b"NATS/1.0\r\nnats-request-info: " + b'{"acc":"B"}\r\n\r\n',
    b'NATS/1.0\r\nNats-Request-Info:{"acc":"\\u0042"}\r\n\r\n',
    b"NATS/1.0\r\n" + NAMES_B,
]
APIS = [b"$JS.API", b"$JS.D.API"]


@pytest.fixture(scope="module")
def server(launch_shared: Launch) -> Iterator[Server]:
    server = launch_accepting(launch_shared, config=CONFIG)
    with ExitStack() as stack:
        for user in "ab":
            caller = stack.enter_context(Caller(server, user, "p"))
            name = f"OF_{user.upper()}"
            assert "error" not in caller.request(f"$JS.API.STREAM.CREATE.{name}", {"name": name}).json
        yield server


@pytest.fixture
def fake() -> Iterator[FakeLeaf]:
    with FakeLeaf() as fake:
        yield fake


def leaf(server: Server, fake: FakeLeaf, user: str, account: str, **connect: Any) -> LeafPeer:
    """Connect a leaf node that gets the answers to inbox."""
    peer = fake.dial(server, user=user, remote_account=account, **{"pass": "p"} | connect)
    peer.subscribe(b"inbox")
    return peer


def ask(peer: LeafPeer, server: Server, api: bytes, header: bytes) -> bytes:
    """Ask for the names of streams, try to delete B's, and return all answers."""
    for request in b".STREAM.NAMES", b".STREAM.DELETE.OF_B":
        peer.publish(api + request, header=header, to=b"inbox")
    found = peer.fence()
    with Caller(server, "b", "p") as caller:  # each request ends after those before it
        for _ in range(3):
            assert caller.request("$JS.API.STREAM.INFO.OF_B").json.get("config", {}).get("name") == "OF_B"
    return b"".join(messages(found + peer.fence()))


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("header", FORGED)
@pytest.mark.parametrize(
    ("account", "domain"), [("A", "D"), ("SYS", None), ("SYS", "d")], ids=["ordinary", "no domain", "another"]
)
def test_a_system_user_names_no_account(
    server: Server, fake: FakeLeaf, account: str, domain: str | None, header: bytes, api: bytes
) -> None:
    """A leaf node's account is bound to the system account: an ordinary one, or that of another domain."""
    if server.kind.is_reference:
        pytest.skip("nats-server believes what a leaf node in the system account sends")
    peer = leaf(server, fake, "s", account, domain=domain)
    assert b"OF_" not in ask(peer, server, api, header)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("header", [b"", *FORGED])
def test_a_user_of_an_account_names_no_other(
    server: Server, fake: FakeLeaf, header: bytes, api: bytes
) -> None:
    peer = leaf(server, fake, "a", "A", domain="leaf")
    assert b"OF_B" not in ask(peer, server, api, header).replace(b"STREAM.DELETE.OF_B", b"")


@pytest.mark.parametrize("name", ["SYS", "$SYS"])
def test_a_shared_system_account_of_the_same_domain(server: Server, fake: FakeLeaf, name: str) -> None:
    """The leaf node writes who asks, behind what its client has sent; nats-server reads the first line."""
    peer = leaf(server, fake, "s", name, domain="D")
    peer.publish(b"$JS.API.STREAM.NAMES", header=FORGED[0], to=b"inbox")
    assert b"OF_B" in peer.await_op(b"LMSG inbox ")
    both = b"NATS/1.0\r\n" + NAMES_B + INFO % b'{"acc":"A"}' + b"\r\n"
    peer.publish(b"$JS.API.STREAM.NAMES", header=both, to=b"inbox")
    answer = peer.await_op(b"LMSG inbox ")
    assert (b"OF_B" if server.kind.is_reference else b"OF_A") in answer


SUBJECTS = ["ACCOUNT.PING.CONNZ", "ACCOUNT.PING.STATZ", "SERVER.PING.CONNZ", "USER.INFO"]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_pages_are_those_of_the_leaf_nodes_account(server: Server, fake: FakeLeaf, subject: str) -> None:
    peer = leaf(server, fake, "a", "A")
    for header in (b"", *FORGED[:-1]):
        peer.publish(f"$SYS.REQ.{subject}".encode(), header=header, to=b"inbox")
    peer.fence()
    with Caller(server, "a", "p") as caller:
        caller.request("$SYS.REQ.ACCOUNT.PING.CONNZ")
    found = b"".join(messages(peer.fence()))
    assert b'"account":"B"' not in found
    assert b'"acc":"B"' not in found
