"""Clients and peers of gateways that mean harm: they get at nothing of other accounts, and hinder nobody."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.gatewaypeer import FakeGateway, GatewayListener, GatewayPeer, launch_gateway, messages, name_hash
from support.launch import Launch
from support.servers import Server
from support.wire import Connection, connect_op, publish_op

pytestmark = pytest.mark.timeout(120)

ACCOUNTS = """
server_name: S
accounts {
    A { users [ { user: a, password: p } ], exports [ { stream: "news.>" } ] }
    B { users [ { user: b, password: p } ], imports [ { stream { account: A, subject: "news.>" } } ] }
}
"""
REPLY = b"_GR_." + name_hash("F") + b".SSSSSS."
"""Of requests of a cluster F."""


def user(server: Server, name: str, **options: object) -> Connection:
    client = Connection(server.address)
    client.send(connect_op(name, "p", headers=True, **options))
    client.fence()
    return client


@pytest.fixture
def fake() -> Iterator[FakeGateway]:
    with FakeGateway() as fake:
        yield fake


@pytest.fixture
def joined(launch: Launch, fake: FakeGateway) -> Iterator[tuple[Server, GatewayPeer]]:
    """A server that has dialled the fake one, and this connection: it brings messages, and takes interest."""
    with GatewayListener() as listener:
        server = launch_gateway(launch, "-D", remotes={fake.gateway: listener.url}, config=ACCOUNTS)
        yield server, fake.accept(listener)


def test_a_reply_of_another_account_diverts_no_messages(
    joined: tuple[Server, GatewayPeer], fake: FakeGateway
) -> None:
    """A publisher of an exported stream has named a subject of the importing account as its reply.

    nats-server sends what the importing client publishes there to the publisher's cluster, and nowhere else.
    """
    server, peer = joined
    source = fake.dial(server)
    with user(server, "b") as client, user(server, "b") as other:
        client.send(b"SUB news.x 1\r\n")
        client.fence()
        other.send(b"SUB own 1\r\n")
        other.fence()
        source.message(b"A", b"news.x", b"x", to=REPLY + b"own")
        assert client.read_op() == b"MSG news.x 1 own 1\r\nx\r\n"
        client.send(publish_op("own", b"mine"))
        client.fence()
        diverted = [b"RMSG B " + REPLY + b"own 4\r\nmine\r\n"]
        if server.kind.is_reference:
            assert (other.fence(), messages(peer.fence())) == ([], diverted)
        else:
            assert (other.fence(), messages(peer.fence())) == ([b"MSG own 1 4\r\nmine\r\n"], [])
