"""Mapped replies: what clients see of them, and where messages go that answer them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.clock import HeldClock
from support.dataplane import DataPlane, Peer, permissions
from support.gatewaypeer import name_hash as expected_hash

from gnats.connection.closed_state import ClosedState
from gnats.core.accounts.account import Account
from gnats.core.internal import InternalSubscriber
from gnats.core.links.leaf_session import LeafEvent
from gnats.core.routing.gateway_reply import GatewayReplies, name_hash
from gnats.core.runtime.inbox import EV_LEAF, EV_MSG
from gnats.core.runtime.kinds import SYSTEM
from gnats.options.values.auth import Permissions, ResponsePermission, SubjectPermission

pytestmark = pytest.mark.timeout(60)
HERE, THERE, ELSEWHERE = b"G", b"F", b"E"
"""Names of clusters: that of this server, that of a requester, one without a connection."""
SERVER, OTHER = b"ID1", b"ID2"
"""This server, and one of the same cluster."""


def mapped(reply: bytes, cluster: bytes = THERE, server: bytes = b"ID9") -> bytes:
    return b"_GR_.%b.%b.%b" % (name_hash(cluster), name_hash(server), reply)


@pytest.fixture
def clock() -> Iterator[HeldClock]:
    with HeldClock() as held:
        yield held


@pytest.fixture(params=[1, 2], ids=["one poller", "two"])
def plane(clock: HeldClock, request: pytest.FixtureRequest) -> Iterator[DataPlane]:
    with DataPlane(request.param) as made:
        yield made


@pytest.fixture
def other(plane: DataPlane) -> int:
    """Another poller than the first, if there is one."""
    return len(plane.pollers) - 1


@pytest.fixture
def account(plane: DataPlane) -> Account:
    return plane.account("A")


@pytest.fixture
def replies(plane: DataPlane) -> GatewayReplies:
    made = GatewayReplies(plane.state)
    made.set_gateway(HERE, SERVER)
    return made


@pytest.fixture
def gateway(plane: DataPlane, replies: GatewayReplies) -> Peer:
    """The way to the requesters' cluster."""
    peer = plane.route()
    replies.set_gateway_links({name_hash(THERE): peer.session})  # type: ignore[dict-item]
    peer.hear()
    return peer


def ask(route: Peer, client: Peer, reply: bytes, subject: bytes = b"svc") -> bytes:
    """Send a client a request over a route; return what it hears."""
    route.say(b"RMSG A %b %b 1\r\n?\r\n" % (subject, reply))
    return client.hear()


@pytest.fixture
def route(plane: DataPlane) -> Peer:
    return plane.route()


@pytest.fixture
def responder(plane: DataPlane, account: Account, other: int) -> Peer:
    peer = plane.client(account, other)
    peer.say(b"SUB svc 1\r\n")
    return peer


def test_the_hash_is_that_of_nats_server() -> None:
    assert name_hash(b"cluster") == expected_hash("cluster")


def test_a_client_sees_and_uses_the_plain_reply(
    plane: DataPlane, account: Account, route: Peer, gateway: Peer, responder: Peer
) -> None:
    """What it publishes there goes to the requester's cluster, whatever the interest, and nowhere else."""
    near = plane.client(account)
    near.say(b"SUB r.> 1\r\n")
    route.say(b"RS+ A r.>\r\n")
    assert ask(route, responder, mapped(b"r.1")) == b"MSG svc 1 r.1 1\r\n?\r\n"
    route.hear()
    for text in b"one", b"two":
        responder.say(b"PUB r.1 3\r\n%b\r\n" % text)
        assert gateway.hear().endswith(b"RMSG A %b 3\r\n%b\r\n" % (mapped(b"r.1"), text))
    assert (near.hear(), b"RMSG" in route.hear()) == (b"", False)


def test_it_may_answer_with_a_reply_of_its_own(route: Peer, gateway: Peer, responder: Peer) -> None:
    ask(route, responder, mapped(b"r.1"))
    gateway.hear()
    responder.say(b"PUB r.1 back 2\r\nok\r\n")
    assert gateway.hear() == b"RMSG A %b back 2\r\nok\r\n" % mapped(b"r.1")


def test_another_client_publishes_as_always(
    plane: DataPlane, account: Account, route: Peer, gateway: Peer, responder: Peer
) -> None:
    ask(route, responder, mapped(b"r.1"))
    gateway.hear()
    client = plane.client(account)
    client.say(b"SUB r.1 1\r\nPUB r.1 2\r\nhi\r\n")
    assert client.hear() == b"" and gateway.hear() == b"RS+ A r.1\r\n"


def test_another_subject_is_published_as_always(
    plane: DataPlane, account: Account, route: Peer, gateway: Peer, responder: Peer
) -> None:
    ask(route, responder, mapped(b"r.1"))
    assert responder.say(b"SUB r.2 2\r\nPUB r.2 2\r\nhi\r\n").endswith(b"MSG r.2 2 2\r\nhi\r\n")


def test_a_reply_is_forgotten(clock: HeldClock, route: Peer, gateway: Peer, responder: Peer) -> None:
    ask(route, responder, mapped(b"r.1"))
    gateway.hear()
    clock.move(3.9)
    responder.say(b"PUB r.1 2\r\nok\r\n")
    assert gateway.hear() == b"RMSG A %b 2\r\nok\r\n" % mapped(b"r.1")
    clock.move(0.2)
    responder.say(b"PUB r.1 2\r\nok\r\n")
    assert gateway.hear() == b""
    assert responder.say(b"SUB r.1 2\r\nPUB r.1 2\r\nhi\r\n").endswith(b"MSG r.1 2 2\r\nhi\r\n")


def test_an_answer_without_a_way_is_dropped(
    plane: DataPlane, account: Account, route: Peer, gateway: Peer, responder: Peer
) -> None:
    near = plane.client(account)
    near.say(b"SUB r.1 1\r\n")
    ask(route, responder, mapped(b"r.1", ELSEWHERE))
    gateway.hear()
    responder.say(b"PUB r.1 2\r\nok\r\n")
    assert gateway.hear() == near.hear() == b""


def test_a_link_that_has_gone_gets_nothing(
    replies: GatewayReplies, route: Peer, gateway: Peer, responder: Peer
) -> None:
    ask(route, responder, mapped(b"r.1"))
    gateway.hear()
    replies.set_gateway_links({})
    responder.say(b"PUB r.1 2\r\nok\r\n")
    assert gateway.hear() == b""


def test_links_are_named_by_hashes(replies: GatewayReplies, route: Peer) -> None:
    with pytest.raises(ValueError, match="not a hash"):
        replies.set_gateway_links({b"short": route.session})  # type: ignore[dict-item]


def test_a_group_member_sees_the_plain_reply(
    plane: DataPlane, account: Account, route: Peer, gateway: Peer
) -> None:
    member = plane.client(account)
    member.say(b"SUB svc g 1\r\n")
    route.say(b"RMSG A svc + %b g 1\r\n?\r\n" % mapped(b"r.1"))
    assert member.hear() == b"MSG svc 1 r.1 1\r\n?\r\n"
    gateway.hear()
    member.say(b"PUB r.1 2\r\nok\r\n")
    assert gateway.hear() == b"RMSG A %b 2\r\nok\r\n" % mapped(b"r.1")


def test_a_leaf_node_gets_the_mapped_reply(
    plane: DataPlane, account: Account, other: int, route: Peer, gateway: Peer, replies: GatewayReplies
) -> None:
    """It answers on that."""
    leaf = plane.leaf(account, other)
    leaf.say(b"LS+ svc\r\n")
    gateway.hear()
    assert ask(route, leaf, mapped(b"r.1")) == b"LMSG svc %b 1\r\n?\r\n" % mapped(b"r.1")
    leaf.say(b"LMSG %b 2\r\nok\r\n" % mapped(b"r.1"))
    assert gateway.hear() == b"RMSG A %b 2\r\nok\r\n" % mapped(b"r.1")
    leaf.say(b"LMSG %b 2\r\nno\r\n" % mapped(b"r.1", ELSEWHERE))
    assert gateway.hear() == b""


def test_permissions_of_a_leaf_node_are_about_the_plain_reply(
    plane: DataPlane, account: Account, gateway: Peer
) -> None:
    allowed = permissions(Permissions(publish=SubjectPermission(allow=("r.>",))))
    leaf = plane.leaf(account, receive=allowed)
    gateway.hear()
    leaf.say(b"LMSG %b 2\r\nok\r\n" % mapped(b"r.1"))
    assert gateway.hear() == b"RMSG A %b 2\r\nok\r\n" % mapped(b"r.1")
    leaf.say(b"LMSG %b 2\r\nok\r\n" % mapped(b"q.1"))
    assert gateway.hear() == b""
    assert [event[2] for event in plane.take(EV_LEAF)] == [LeafEvent.LEAF_PUBLISH_DENIED]
    leaf.session.close_connection(ClosedState.PROTOCOL_VIOLATION)


def test_behind_a_hub_answers_go_to_the_hub(plane: DataPlane, account: Account, other: int) -> None:
    """This server has no gateways: the hub has them."""
    hub = plane.leaf(account, spoke=True)
    hub.say(b"LS+ _GR_.>\r\n")
    leaf = plane.leaf(account)
    leaf.say(b"LS+ _GR_.>\r\n")
    responder, curious = plane.client(account, other), plane.client(account, other)
    responder.say(b"SUB svc 1\r\n")
    curious.say(b"SUB > 1\r\n")
    hub.hear()
    hub.say(b"LMSG svc %b 1\r\n?\r\n" % mapped(b"r.1"))
    assert responder.hear() == b"MSG svc 1 r.1 1\r\n?\r\n"
    assert curious.hear() == b"MSG svc 1 r.1 1\r\n?\r\n"
    leaf.hear()
    responder.say(b"PUB r.1 2\r\nok\r\n")
    assert hub.hear() == b"LMSG %b 2\r\nok\r\n" % mapped(b"r.1")
    assert curious.hear() == leaf.hear() == b""


def test_a_client_may_answer_what_it_was_asked(
    plane: DataPlane, account: Account, route: Peer, gateway: Peer, responder: Peer
) -> None:
    """Its permissions are about the plain reply."""
    allowed = Permissions(publish=SubjectPermission(deny=(">",)), response=ResponsePermission())
    responder.session.set_permissions(permissions(allowed))
    plane.run()
    ask(route, responder, mapped(b"r.1"))
    gateway.hear()
    assert responder.say(b"PUB r.1 2\r\nok\r\n") == b"+OK\r\n"
    assert gateway.hear() == b"RMSG A %b 2\r\nok\r\n" % mapped(b"r.1")


def test_clients_may_not_publish_to_mapped_replies(gateway: Peer, responder: Peer) -> None:
    gateway.hear()
    subject = mapped(b"r.1")
    refused = b"-ERR 'Permissions Violation for Publish to \"%b\"'\r\n" % subject
    assert responder.say(b"PUB %b 2\r\nok\r\n" % subject) == refused
    assert responder.say(b"PUB _GR_.x 2\r\nok\r\n").startswith(b"-ERR 'Permissions Violation for Publish")
    assert gateway.hear() == b""


def test_the_server_itself_gets_the_mapped_reply(
    plane: DataPlane, account: Account, route: Peer, gateway: Peer
) -> None:
    """It answers on that."""
    own = InternalSubscriber(SYSTEM, -1, 1000, plane.pollers[0], plane.state)
    own.register(account)
    own.subscribe_internal(b"own", None, b"1")
    route.say(b"RMSG A own %b 1\r\n?\r\n" % mapped(b"r.1"))
    ((_, _, _, _, message),) = plane.take(EV_MSG)
    assert message[1] == mapped(b"r.1")  # type: ignore[index]
    gateway.hear()
    assert own.publish_internal(mapped(b"r.1"), None, None, b"ok")
    assert gateway.hear() == b"RMSG A %b 2\r\nok\r\n" % mapped(b"r.1")


def test_an_answer_arrives(
    plane: DataPlane, account: Account, other: int, route: Peer, replies: GatewayReplies
) -> None:
    """Its subscribers see the plain reply; groups get it, too, although it names none."""
    client = plane.client(account, other)
    client.say(b"SUB r.1 1\r\nSUB r.* g 2\r\n")
    route.say(b"RMSG A %b 2\r\nok\r\n" % mapped(b"r.1", HERE, SERVER))
    assert sorted(client.hear().split(b"ok\r\n")) == [b"", b"MSG r.1 1 2\r\n", b"MSG r.1 2 2\r\n"]
    route.say(b"HMSG A %b back 12 14\r\nNATS/1.0\r\n\r\nok\r\n" % mapped(b"r.1", HERE, OTHER))
    assert client.hear().count(b" back 2\r\nok\r\n") == 2


def test_answers_of_other_clusters_are_dropped(
    plane: DataPlane, account: Account, route: Peer, replies: GatewayReplies
) -> None:
    client = plane.client(account)
    client.say(b"SUB r.1 1\r\nSUB > 2\r\n")
    route.say(b"RMSG A %b 2\r\nok\r\n" % mapped(b"r.1", ELSEWHERE, SERVER))
    assert client.hear() == b""
