"""Messages over gateways: forms, groups, traces, and accounts that come later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from support.gatewaypeer import (
    ALL_SUBS_COMPLETE,
    ALL_SUBS_START,
    FakeGateway,
    GatewayListener,
    GatewayPeer,
    commands,
    interest,
    launch_gateway,
    messages,
)
from support.launch import Launch
from support.reload import reload
from support.servers import Server
from support.wire import Connection, connect_op, header, publish_op

pytestmark = pytest.mark.timeout(60)

CLIENT, GATEWAY = 0, 2
ACCOUNTS = """
server_name: S
accounts {
    A { users [ { user: a, password: p } ] }
    SYS { users [ { user: s, password: p } ] }
}
system_account: SYS
"""
MORE = ACCOUNTS.replace("accounts {", "accounts {\n    LATER { users [ { user: l, password: p } ] }")
DEST = "Nats-Trace-Dest: dest"


@dataclass
class World:
    """A server between two other clusters, F and H, that it has dialled."""

    server: Server
    fakes: tuple[FakeGateway, FakeGateway]
    peers: tuple[GatewayPeer, GatewayPeer]

    def sent(self) -> list[list[bytes]]:
        """Return the messages that have come at each."""
        return [messages(peer.fence()) for peer in self.peers]


def full(fake: FakeGateway, account: str, *subjects: bytes) -> bytes:
    """Encode all interest in an account."""
    lines = b"".join(b"RS+ %b %b\r\n" % (account.encode(), subject) for subject in subjects)
    return fake.command(ALL_SUBS_START, account) + lines + fake.command(ALL_SUBS_COMPLETE, account)


@pytest.fixture
def world(launch: Launch, request: pytest.FixtureRequest) -> Iterator[World]:
    """Its parameter are members of the INFO of H."""
    members = getattr(request, "param", {})
    with (
        FakeGateway("F") as one,
        FakeGateway("H", **members) as other,
        GatewayListener() as at_one,
        GatewayListener() as at_other,
    ):
        remotes = {"F": at_one.url, "H": at_other.url}
        server = launch_gateway(launch, "-D", remotes=remotes, config=ACCOUNTS)
        peers = one.accept(at_one), other.accept(at_other)
        yield World(server, (one, other), peers)


def user(server: Server, name: str = "a") -> Connection:
    client = Connection(server.address)
    client.send(connect_op(name, "p", headers=True))
    client.fence()
    return client


def tell(world: World, *subjects: tuple[bytes, ...], account: str = "A") -> None:
    """Have each peer tell of its subjects."""
    for fake, peer, own in zip(world.fakes, world.peers, subjects, strict=True):
        peer.send(full(fake, account, *own))
        peer.fence()


def traces(client: Connection, count: int = 1) -> list[dict[str, Any]]:
    """Wait for so many messages on dest, which are traces; leave out what differs between runs."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        line, _, body = client.read_op().partition(b"\r\n")
        if line.split()[1] != b"dest":
            continue
        trace = json.loads(body)
        for event in trace["events"]:
            del event["ts"]
            event.pop("cid", None)
        found.append(trace)
    return found


# -- groups --------------------------------------------------------------------------------------------------


def test_a_group_in_two_clusters_gets_a_message_in_one(world: World) -> None:
    tell(world, (b"x g 1", b"x", b"y h 1"), (b"x g 1", b"x", b"* g 1"))
    with user(world.server) as client:
        client.send(publish_op("x") + publish_op("x", reply="r"))
        client.fence()
        named = [b"RMSG A x | g 0\r\n\r\n", b"RMSG A x + r g 0\r\n\r\n"]
        plain = [b"RMSG A x 0\r\n\r\n", b"RMSG A x r 0\r\n\r\n"]
        assert sorted(world.sent()) == sorted([named, plain])
        client.send(publish_op("y"))
        client.fence()
        assert world.sent() == [[b"RMSG A y | h 0\r\n\r\n"], [b"RMSG A y | g 0\r\n\r\n"]]
        client.send(b"SUB y h 1\r\n" + publish_op("y"))
        client.fence()
        assert world.sent() == [[], [b"RMSG A y | g 0\r\n\r\n"]]


# -- headers, traces -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [{"headers": False}], indirect=True)
def test_a_peer_without_headers_gets_the_payload(world: World) -> None:
    tell(world, (b"x",), (b"x",))
    block = header("A: b")
    with user(world.server) as client:
        client.send(publish_op("x", b"hi", "r", block))
        client.fence()
        sizes = b"%d %d\r\n" % (len(block), len(block) + 2)
        assert world.sent() == [[b"HMSG A x r " + sizes + block + b"hi\r\n"], [b"RMSG A x r 2\r\nhi\r\n"]]


def test_a_hop_is_made_for_each_cluster(world: World) -> None:
    tell(world, (b"x",), (b"x",))
    with user(world.server) as client:
        client.send(b"SUB dest 9\r\nSUB x 1\r\n" + publish_op("x", b"hi", header=header("A: 1", DEST)))
        (trace,) = traces(client)
        assert trace["hops"] == 2
        assert trace["events"][:2] == [
            {"type": "in", "kind": CLIENT, "acc": "A", "subj": "x"},
            {"type": "eg", "kind": CLIENT, "sub": "x"},
        ]
        hops = {event["name"]: event for event in trace["events"][2:]}
        assert set(hops) == {fake.name for fake in world.fakes}
        assert sorted(event["hop"] for event in hops.values()) == ["1", "2"]
        for fake, sent in zip(world.fakes, world.sent(), strict=True):
            event = hops[fake.name]
            assert event == {"type": "eg", "kind": GATEWAY, "name": fake.name, "hop": event["hop"]}
            (message,) = sent
            assert message.endswith(header("A: 1", DEST, f"Nats-Trace-Hop: {event['hop']}") + b"hi\r\n")


@pytest.mark.parametrize("world", [{"proto": 2}], indirect=True)
def test_a_peer_that_knows_no_traces(world: World) -> None:
    tell(world, (), (b"x",))
    with user(world.server) as client:
        client.send(b"SUB dest 9\r\n" + publish_op("x", header=header(DEST)))
        (trace,) = traces(client)
        assert trace["events"][1]["error"].startswith("Message delivered but remote does not support")
        assert len(world.sent()[1]) == 1
        client.send(publish_op("x", header=header(DEST, "Nats-Trace-Only: 1")))
        (trace,) = traces(client)
        assert trace["events"][1]["error"] == "Not delivered because remote does not support message tracing"
        assert world.sent() == [[], []]


def test_what_a_peer_sends_is_traced(world: World) -> None:
    fake = world.fakes[0]
    source = fake.dial(world.server)
    with user(world.server) as client:
        client.send(b"SUB dest 9\r\nSUB x 1\r\nSUB x g 2\r\n")
        client.fence()
        block = header(DEST, "Nats-Trace-Hop: 3")
        source.send(b"HMSG A x | g %d %d\r\n%bhi\r\n" % (len(block), len(block) + 2, block))
        source.fence()
        (trace,) = traces(client)
        assert trace["events"] == [
            {"type": "in", "kind": GATEWAY, "name": fake.name, "acc": "A", "subj": "x"},
            {"type": "eg", "kind": CLIENT, "sub": "x"},
            {"type": "eg", "kind": CLIENT, "sub": "x", "queue": "g"},
        ]
        assert "hops" not in trace


# -- accounts that come later --------------------------------------------------------------------------------


def test_an_account_that_a_reload_adds(world: World) -> None:
    """Its interest is announced, and what a peer has told of it counts."""
    tell(world, (b"x",), (b"x g 1", b"gone"), account="LATER")
    world.peers[1].send(b"RS- LATER gone\r\n")
    world.peers[1].fence()
    source = world.fakes[0].dial(world.server)
    source.take_accounts(3)
    reload(world.server, world.server.conf.read_text().replace(ACCOUNTS, MORE))
    ops = source.take_accounts(4)
    assert commands(ops)[-2:] == [(ALL_SUBS_START, "LATER"), (ALL_SUBS_COMPLETE, "LATER")]
    with user(world.server, "l") as client:
        client.send(b"SUB own 1\r\n" + publish_op("x") + publish_op("gone"))
        client.fence()
        assert world.sent() == [[b"RMSG LATER x 0\r\n\r\n"], [b"RMSG LATER x | g 0\r\n\r\n"]]
        assert interest(source.fence(), b"LATER") == [b"RS+ own"]
