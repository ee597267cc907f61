"""What an account's data plane counts of messages over links, by kind of link."""

from __future__ import annotations

import pytest
from support.dataplane import DataPlane, Peer

from gnats.core.accounts.account import Account
from gnats.core.routing.gateway_reply import GatewayReplies, name_hash

pytestmark = pytest.mark.timeout(60)

NONE = (0, 0, 0, 0)
NOTHING = {"gateways": NONE, "routes": NONE, "leafs": NONE}
HERE, THERE = b"G", b"F"
"""Names of clusters: that of this server, and another one."""
SERVER, OTHER = b"ID1", b"ID2"
"""This server, and one of the same cluster."""


def answer_to(server: bytes, cluster: bytes = HERE) -> bytes:
    """Return the mapped reply of a request that a server of a cluster has sent."""
    return b"_GR_.%b.%b.inbox" % (name_hash(cluster), name_hash(server))


def interested(peer: Peer, line: bytes) -> Peer:
    peer.say(line)
    return peer


def test_an_account_without_links_counts_nothing(plane: DataPlane, account: Account) -> None:
    client = plane.client(account)
    assert b"MSG foo 1 3\r\nabc\r\n" in client.say(b"SUB foo 1\r\nPUB foo 3\r\nabc\r\n")
    assert account.link_traffic_of() == NOTHING


def test_each_kind_has_counts_of_its_own(plane: DataPlane, account: Account, other: int) -> None:
    """A message that goes to several links counts once for each."""
    interested(plane.route(), b"RS+ A foo\r\n")
    interested(plane.route(other), b"RS+ A foo\r\n")
    interested(plane.leaf(account, other), b"LS+ foo\r\n")
    interested(plane.leaf(account), b"LS+ foo\r\n")
    interested(plane.leaf(account), b"LS+ foo\r\n")
    interested(plane.outbound(), b"RS+ A foo\r\n")
    for poller in 0, other:
        plane.client(account, poller).say(b"PUB foo 3\r\nabc\r\nPUB foo 13\r\nabcdefghijklm\r\n")
    sizes = 2 * (3 + 13)
    assert account.link_traffic_of() == {
        "gateways": (0, 0, 4, sizes),
        "routes": (0, 0, 8, 2 * sizes),
        "leafs": (0, 0, 12, 3 * sizes),
    }


def test_what_comes_counts_once_wherever_it_goes(plane: DataPlane, account: Account, other: int) -> None:
    """What comes from leaf nodes is counted by their connections."""
    for poller in 0, other:
        plane.client(account, poller).say(b"SUB foo 1\r\n")
    for poller in 0, other:
        plane.route(poller).say(b"RMSG A foo 3\r\nabc\r\nRMSG A nobody 1\r\na\r\n")
        plane.inbound(poller).say(b"RMSG A foo 5\r\nabcde\r\n")
        plane.leaf(account, poller).say(b"LMSG foo 7\r\nabcdefg\r\n")
    assert account.link_traffic_of() == {
        "gateways": (2, 10, 0, 0),
        "routes": (4, 8, 0, 0),
        "leafs": NONE,
    }


def test_accounts_are_counted_apart(plane: DataPlane, account: Account) -> None:
    second = plane.account("B")
    interested(plane.route(), b"RS+ B foo\r\n")
    plane.client(second).say(b"PUB foo 3\r\nabc\r\n")
    plane.client(account).say(b"PUB foo 3\r\nabc\r\n")
    plane.route().say(b"RMSG A foo 1\r\na\r\nRMSG X foo 1\r\na\r\n")
    assert account.link_traffic_of() == NOTHING | {"routes": (1, 1, 0, 0)}
    assert second.link_traffic_of() == NOTHING | {"routes": (0, 0, 1, 3)}


def test_a_link_that_is_not_allowed_a_message_does_not_count(plane: DataPlane, account: Account) -> None:
    route = interested(plane.route(), b"RS+ A foo\r\n")
    client = plane.client(account)
    route.socket.close()
    plane.run()
    client.say(b"PUB foo 3\r\nabc\r\n")
    assert account.link_traffic_of() == NOTHING


@pytest.fixture
def replies(plane: DataPlane) -> GatewayReplies:
    made = GatewayReplies(plane.state)
    made.set_gateway(HERE, SERVER)
    return made


@pytest.mark.parametrize("way", ["route", "gateway"])
def test_what_answers_a_mapped_reply_is_not_counted(
    plane: DataPlane, account: Account, replies: GatewayReplies, way: str
) -> None:
    """As in nats-server: no account counts it when it comes."""
    client = plane.client(account)
    client.say(b"SUB inbox 1\r\n")
    source = plane.route() if way == "route" else plane.inbound(cluster=THERE)
    source.say(b"RMSG A %b 3\r\nabc\r\n" % answer_to(SERVER))
    assert client.hear() == b"MSG inbox 1 3\r\nabc\r\n"
    assert account.link_traffic_of() == NOTHING


def test_what_is_passed_to_the_server_of_the_requester_is_not_counted(
    plane: DataPlane, account: Account, replies: GatewayReplies
) -> None:
    route = plane.route()
    replies.set_gateway_routes({name_hash(OTHER): route.session})  # type: ignore[dict-item]
    mapped = answer_to(OTHER)
    plane.inbound(cluster=THERE).say(b"RMSG A %b 3\r\nabc\r\n" % mapped)
    assert route.hear() == b"RMSG A %b 3\r\nabc\r\n" % mapped
    assert account.link_traffic_of() == NOTHING


def test_without_gateways_such_a_subject_is_like_any_other(plane: DataPlane, account: Account) -> None:
    plane.route().say(b"RMSG A %b 3\r\nabc\r\n" % answer_to(SERVER))
    assert account.link_traffic_of() == NOTHING | {"routes": (1, 3, 0, 0)}


def test_an_answer_over_a_gateway_is_sent_over_it(
    plane: DataPlane, account: Account, replies: GatewayReplies
) -> None:
    gateway = plane.outbound(cluster=THERE)
    replies.set_gateway_links({name_hash(THERE): gateway.session})  # type: ignore[dict-item]
    responder = plane.client(account)
    responder.say(b"SUB ask 1\r\n")
    plane.inbound(cluster=THERE).say(b"RMSG A ask %b 2\r\nab\r\n" % answer_to(b"ID9", THERE))
    assert responder.hear() == b"MSG ask 1 inbox 2\r\nab\r\n"
    responder.say(b"PUB inbox 3\r\nabc\r\n")
    assert gateway.hear() == b"RMSG A %b 3\r\nabc\r\n" % answer_to(b"ID9", THERE)
    assert account.link_traffic_of() == NOTHING | {"gateways": (1, 2, 1, 3)}
