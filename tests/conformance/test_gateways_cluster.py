"""A gateway of a server with routes and leaf nodes: the cluster's interest, URLs, messages, replies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.gatewaypeer import (
    ALL_SUBS_COMPLETE,
    ALL_SUBS_START,
    GOSSIP,
    FakeGateway,
    GatewayListener,
    GatewayPeer,
    interest,
    launch_gateway,
    messages,
    name_hash,
)
from support.launch import Launch
from support.leafpeer import FakeLeaf
from support.leafpeer import interest as leaf_interest
from support.leafpeer import messages as leaf_messages
from support.monitor import monitor
from support.routepeer import Fake, RoutePeer, encode
from support.servers import Server
from support.wire import Connection, connect_op, parse_info

pytestmark = pytest.mark.timeout(60)

CONFIG = """
server_name: S
cluster { name: G, listen: '127.0.0.1:-1', compression: off, pool_size: -1 }
leafnodes { listen: '127.0.0.1:-1', compression: off }
accounts {
    A { users [ { user: a, password: p } ] }
    SYS { users [ { user: s, password: p } ] }
}
system_account: SYS
"""
REPLY = b"_GR_." + name_hash("F") + b".SSSSSS.inbox"
"""A reply that a server of the cluster F has mapped."""


@pytest.fixture
def fake() -> Iterator[FakeGateway]:
    with FakeGateway() as fake:
        yield fake


@pytest.fixture
def listener() -> Iterator[GatewayListener]:
    with GatewayListener() as listener:
        yield listener


@pytest.fixture
def server(launch: Launch, listener: GatewayListener) -> Server:
    return launch_gateway(launch, "-D", remotes={"F": listener.url}, config=CONFIG)


@pytest.fixture
def outbound(server: Server, fake: FakeGateway, listener: GatewayListener) -> GatewayPeer:
    """A connection that brings the server's messages about x in account A."""
    peer = fake.accept(listener)
    about = fake.command(ALL_SUBS_START, "A"), b"RS+ A x\r\n", fake.command(ALL_SUBS_COMPLETE, "A")
    peer.send(b"".join(about))
    peer.fence()
    return peer


@pytest.fixture
def inbound(server: Server, fake: FakeGateway) -> GatewayPeer:
    """A connection that brings messages to the server, and its interest."""
    peer = fake.dial(server)
    peer.take_accounts(3)
    return peer


@pytest.fixture
def other() -> Iterator[Fake]:
    """Another server of the cluster."""
    with Fake(cluster="G") as other:
        yield other


@pytest.fixture
def route(server: Server, other: Fake) -> RoutePeer:
    """A route from that server, whose gateway has a URL."""
    return other.dial(server, gateway_url="127.0.0.1:77")


@pytest.fixture
def leaf() -> Iterator[FakeLeaf]:
    with FakeLeaf() as leaf:
        yield leaf


def user(server: Server) -> Connection:
    client = Connection(server.address)
    client.send(connect_op("a", "p"))
    client.fence()
    return client


# -- routes --------------------------------------------------------------------------------------------------


def test_interest_is_that_of_the_cluster(server: Server, inbound: GatewayPeer, route: RoutePeer) -> None:
    route.tell(b"RS+", b"A", b"far", b"q g 3")
    assert interest(inbound.fence(), b"A") == [b"RS+ far", b"RS+ q g 1"]
    with user(server) as client:
        client.send(b"SUB far 1\r\nSUB q g 2\r\n")
        client.fence()
        route.tell(b"RS-", b"A", b"far", b"q g")
        assert interest(inbound.fence(), b"A") == []
        client.send(b"UNSUB 1\r\nUNSUB 2\r\n")
        client.fence()
        assert interest(inbound.fence(), b"A") == [b"RS- far", b"RS- q g"]


def test_urls_of_the_clusters_other_gateways_come_and_go(inbound: GatewayPeer, route: RoutePeer) -> None:
    own = inbound.info["gateway_url"]

    def urls() -> list[str]:
        return sorted(parse_info(inbound.await_op(b"INFO "))["gateway_urls"])

    assert urls() == sorted([own, "127.0.0.1:77"])
    route.close()
    assert urls() == [own]


def test_a_new_route_hears_of_the_connected_clusters(
    outbound: GatewayPeer, listener: GatewayListener, route: RoutePeer
) -> None:
    (info,) = (parse_info(op) for op in route.opening if b'"gateway_cmd"' in op)
    assert route.info["gateway_url"] == outbound.info["gateway_url"]
    assert info["server_id"] == f"GW{route.info['server_id']}"
    assert (info["gateway"], info["gateway_urls"], info["gateway_cmd"]) == ("F", [listener.address], GOSSIP)


def test_a_cluster_that_a_route_tells_of_is_dialled(route: RoutePeer) -> None:
    with FakeGateway("K") as far, GatewayListener() as there:
        about = {"server_id": "GWX", "gateway": "K", "gateway_urls": [there.address], "gateway_cmd": GOSSIP}
        route.send(encode("INFO", about))
        assert far.accept(there).connect["gateway"] == "G"


def test_messages_of_a_gateway_reach_the_cluster(
    server: Server, inbound: GatewayPeer, route: RoutePeer
) -> None:
    route.tell(b"RS+", b"A", b"far", b"q g 3")
    inbound.message(b"A", b"far", b"1")
    inbound.message(b"A", b"q", b"2", to=b"| g")
    inbound.message(b"A", b"q", b"3")
    inbound.fence()
    assert messages(route.fence()) == [b"RMSG A far 1\r\n1\r\n", b"RMSG A q | g 1\r\n2\r\n"]


def test_messages_of_a_route_go_to_no_gateway(outbound: GatewayPeer, route: RoutePeer) -> None:
    route.message(b"A", b"x")
    route.fence()
    assert messages(outbound.fence()) == []


def test_a_mapped_reply_goes_to_the_server_that_it_names(
    server: Server, inbound: GatewayPeer, route: RoutePeer, other: Fake
) -> None:
    cluster, there = name_hash("G"), name_hash("no server")
    reply = b"_GR_." + cluster + b"." + name_hash(other.id) + b".inbox"
    monitor(server, "/routez")  # its answer comes when the server has done all that the route has caused
    inbound.message(b"A", reply, b"answer")
    inbound.fence()
    assert messages(route.fence()) == [b"RMSG A " + reply + b" 6\r\nanswer\r\n"]
    with user(server) as client:
        client.send(b"SUB inbox 1\r\n")
        client.fence()
        route.message(b"A", b"_GR_." + cluster + b"." + there + b".inbox", b"here")
        route.fence()
        assert client.fence() == [b"MSG inbox 1 4\r\nhere\r\n"]


# -- leaf nodes ----------------------------------------------------------------------------------------------


def test_leaf_nodes_and_gateways_hear_of_each_others_interest(
    server: Server, inbound: GatewayPeer, outbound: GatewayPeer, leaf: FakeLeaf
) -> None:
    peer = leaf.dial(server, user="a", **{"pass": "p"})
    assert {b"LS+ x", b"LS+ _GR_.>"} <= set(leaf_interest(peer.opening))
    outbound.tell(b"RS+", b"A", b"new")
    assert leaf_interest(peer.until(b"LS+ new\r\n")) == [b"LS+ new"]
    outbound.tell(b"RS-", b"A", b"new")
    assert leaf_interest(peer.until(b"LS- new\r\n")) == [b"LS- new"]
    peer.subscribe(b"leafed")
    assert b"RS+ leafed" in interest(inbound.fence(), b"A")


def test_messages_and_replies_of_a_leaf_node_cross(
    server: Server, inbound: GatewayPeer, outbound: GatewayPeer, leaf: FakeLeaf
) -> None:
    peer = leaf.dial(server, user="a", **{"pass": "p"})
    peer.subscribe(b"req")
    peer.publish(b"x", b"1")
    peer.fence()
    assert messages(outbound.fence()) == [b"RMSG A x 1\r\n1\r\n"]
    inbound.message(b"A", b"req", b"2", to=REPLY)
    inbound.fence()
    assert leaf_messages(peer.fence()) == [b"LMSG req " + REPLY + b" 1\r\n2\r\n"]
    peer.publish(REPLY, b"3")
    peer.fence()
    assert messages(outbound.fence()) == [b"RMSG A " + REPLY + b" 1\r\n3\r\n"]
