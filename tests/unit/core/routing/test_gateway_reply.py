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
from gnats.core.links.gateway_session import GatewaySession
from gnats.core.links.leaf_session import LeafEvent
from gnats.core.routing.gateway_reply import GatewayReplies, name_hash
from gnats.core.routing.services import ExportedService, ImportedService
from gnats.core.runtime.inbox import EV_LEAF, EV_MSG
from gnats.core.runtime.kinds import SYSTEM
from gnats.options.values.auth import Permissions, ResponsePermission, SubjectPermission

pytestmark = pytest.mark.timeout(60)
HERE, THERE, ELSEWHERE = b"G", b"F", b"E"
"""Names of clusters: that of this server, that of a requester, one without a connection."""
SERVER, OTHER = b"ID1", b"ID2"
"""This server, and one of the same cluster."""


def mapped(reply: bytes, cluster: bytes = THERE, server: bytes = b"ID9") -> bytes:
    """Map a reply as that server of that cluster does."""
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
def replies(plane: DataPlane) -> GatewayReplies:
    made = GatewayReplies(plane.state)
    made.set_gateway(HERE, SERVER)
    return made


@pytest.fixture
def gateway(plane: DataPlane, replies: GatewayReplies) -> Peer:
    """The way to the cluster of requesters."""
    peer = plane.outbound(cluster=THERE)
    replies.set_gateway_links({name_hash(THERE): peer.session})  # type: ignore[dict-item]
    return peer


@pytest.fixture(params=["from a gateway", "from a route"])
def source(plane: DataPlane, request: pytest.FixtureRequest) -> Peer:
    """What brings messages of another cluster: a connection from there, or another server of this one."""
    return plane.inbound(cluster=THERE) if request.param == "from a gateway" else plane.route()


@pytest.fixture
def responder(plane: DataPlane, account: Account, other: int) -> Peer:
    peer = plane.client(account, other)
    peer.say(b"SUB svc 1\r\n")
    return peer


def imported(account: Account, export: ExportedService) -> ImportedService:
    """Import the service svc."""
    terms = {"use_published": False, "share": False, "to_system": False}
    return ImportedService(account, export, b"svc", b"svc", None, **terms, sid=b"1")


def ask(source: Peer, responder: Peer, reply: bytes) -> bytes:
    """Send a request from another server; return what the responder hears."""
    source.say(b"RMSG A svc %b 1\r\n?\r\n" % reply)
    return responder.hear()


def test_the_hash_is_that_of_nats_server() -> None:
    assert name_hash(b"cluster") == expected_hash("cluster")


def test_ways_are_named_by_hashes(replies: GatewayReplies, gateway: Peer) -> None:
    with pytest.raises(ValueError, match="not a hash"):
        replies.set_gateway_links({b"short": gateway.session})  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        replies.set_gateway_routes({name_hash(b"x"): "no session"})  # type: ignore[dict-item]


# -- a client is asked ---------------------------------------------------------------------------------------


def test_a_client_sees_and_uses_the_plain_reply(
    plane: DataPlane, account: Account, source: Peer, gateway: Peer, responder: Peer
) -> None:
    """What it publishes there goes to the requester's cluster, whatever the interest, and nowhere else."""
    near, route = plane.client(account), plane.route()
    near.say(b"SUB r.> 1\r\n")
    assert ask(source, responder, mapped(b"r.1")) == b"MSG svc 1 r.1 1\r\n?\r\n"
    route.say(b"RS+ A r.>\r\n")
    for text in b"one", b"two":
        responder.say(b"PUB r.1 3\r\n%b\r\n" % text)
        assert gateway.hear() == b"RMSG A %b 3\r\n%b\r\n" % (mapped(b"r.1"), text)
    assert (near.hear(), b"RMSG" in route.hear()) == (b"", False)


def test_replies_may_be_long(plane: DataPlane, source: Peer, gateway: Peer, responder: Peer) -> None:
    long = b"r." * 400 + b"z"
    gateway.say(b"RS+ A far\r\n")
    assert ask(source, responder, mapped(long)) == b"MSG svc 1 %b 1\r\n?\r\n" % long
    responder.say(b"SUB %b 2\r\nPUB %b 2\r\nok\r\nPUB far %b 1\r\n?\r\n" % (long, long, long))
    ours = mapped(long, HERE, SERVER)
    assert gateway.hear() == b"RMSG A %b 2\r\nok\r\nRMSG A far %b 1\r\n?\r\n" % (mapped(long), ours)


def test_it_may_be_asked_in_turn(source: Peer, gateway: Peer, responder: Peer) -> None:
    ask(source, responder, mapped(b"r.1"))
    responder.say(b"PUB r.1 back 2\r\nok\r\n")
    assert gateway.hear() == b"RMSG A %b back 2\r\nok\r\n" % mapped(b"r.1")


def test_another_client_publishes_as_always(
    plane: DataPlane, account: Account, source: Peer, gateway: Peer, responder: Peer
) -> None:
    ask(source, responder, mapped(b"r.1"))
    client = plane.client(account)
    assert client.say(b"SUB r.1 1\r\nPUB r.1 2\r\nhi\r\n").endswith(b"MSG r.1 1 2\r\nhi\r\n")
    assert gateway.hear() == b""


def test_other_subjects_are_published_as_always(source: Peer, gateway: Peer, responder: Peer) -> None:
    ask(source, responder, mapped(b"r.1"))
    assert responder.say(b"SUB r.2 2\r\nPUB r.2 2\r\nhi\r\n").endswith(b"MSG r.2 2 2\r\nhi\r\n")
    assert gateway.hear() == b""


def test_a_reply_is_forgotten(clock: HeldClock, source: Peer, gateway: Peer, responder: Peer) -> None:
    ask(source, responder, mapped(b"r.1"))
    clock.move(3.9)
    responder.say(b"PUB r.1 2\r\nok\r\n")
    assert gateway.hear() == b"RMSG A %b 2\r\nok\r\n" % mapped(b"r.1")
    clock.move(0.2)
    responder.say(b"SUB r.1 2\r\n")
    assert responder.say(b"PUB r.1 2\r\nhi\r\n").endswith(b"MSG r.1 2 2\r\nhi\r\n")
    assert gateway.hear() == b""


def test_an_answer_without_a_way_is_dropped(
    plane: DataPlane, account: Account, replies: GatewayReplies, source: Peer, gateway: Peer, responder: Peer
) -> None:
    near = plane.client(account)
    near.say(b"SUB r.* 1\r\n")
    ask(source, responder, mapped(b"r.1", ELSEWHERE))
    ask(source, responder, mapped(b"r.2"))
    responder.say(b"PUB r.1 2\r\nok\r\n")
    replies.set_gateway_links({})
    responder.say(b"PUB r.2 2\r\nok\r\n")
    assert gateway.hear() == near.hear() == b""


def test_a_group_member_sees_the_plain_reply(
    plane: DataPlane, account: Account, source: Peer, gateway: Peer
) -> None:
    member = plane.client(account)
    member.say(b"SUB svc g 1\r\n")
    source.say(b"RMSG A svc + %b g 1\r\n?\r\n" % mapped(b"r.1"))
    assert member.hear() == b"MSG svc 1 r.1 1\r\n?\r\n"
    member.say(b"PUB r.1 2\r\nok\r\n")
    assert gateway.hear() == b"RMSG A %b 2\r\nok\r\n" % mapped(b"r.1")


def test_a_client_may_answer_what_it_was_asked(
    plane: DataPlane, source: Peer, gateway: Peer, responder: Peer
) -> None:
    """Its permissions are about the plain reply."""
    allowed = Permissions(publish=SubjectPermission(deny=(">",)), response=ResponsePermission())
    responder.session.set_permissions(permissions(allowed))
    plane.run()
    ask(source, responder, mapped(b"r.1"))
    assert b"-ERR" not in responder.say(b"PUB r.1 2\r\nok\r\n")
    assert gateway.hear() == b"RMSG A %b 2\r\nok\r\n" % mapped(b"r.1")
    assert b"-ERR" in responder.say(b"PUB r.1 2\r\nok\r\n")
    assert gateway.hear() == b""


def test_clients_may_not_publish_to_mapped_replies(gateway: Peer, responder: Peer) -> None:
    subject = mapped(b"r.1")
    refused = b"-ERR 'Permissions Violation for Publish to \"%b\"'\r\n" % subject
    assert responder.say(b"PUB %b 2\r\nok\r\n" % subject) == refused
    assert responder.say(b"PUB _GR_.x 2\r\nok\r\n").startswith(b"-ERR 'Permissions Violation for Publish")
    assert gateway.hear() == b""


# -- others are asked ----------------------------------------------------------------------------------------


def test_the_server_itself_gets_the_mapped_reply(
    plane: DataPlane, account: Account, source: Peer, gateway: Peer
) -> None:
    """It answers on that."""
    own = InternalSubscriber(SYSTEM, -1, 1000, plane.pollers[0], plane.state)
    own.register(account)
    own.subscribe_internal(b"svc", None, b"1")
    source.say(b"RMSG A svc %b 1\r\n?\r\n" % mapped(b"r.1"))
    ((_, _, _, _, message),) = plane.take(EV_MSG)
    assert message[1] == mapped(b"r.1")  # type: ignore[index]
    assert own.publish_internal(mapped(b"r.1"), None, None, b"ok")
    assert gateway.hear() == b"RMSG A %b 2\r\nok\r\n" % mapped(b"r.1")
    assert not own.publish_internal(mapped(b"r.1", ELSEWHERE), None, None, b"ok")


def test_another_server_gets_the_mapped_reply(plane: DataPlane, account: Account) -> None:
    route, source = plane.route(), plane.inbound()
    route.say(b"RS+ A svc\r\n")
    assert ask(source, route, mapped(b"r.1")) == b"RMSG A svc %b 1\r\n?\r\n" % mapped(b"r.1")


def test_a_leaf_node_gets_the_mapped_reply(
    plane: DataPlane, account: Account, other: int, source: Peer, gateway: Peer
) -> None:
    """It answers on that."""
    leaf = plane.leaf(account, other)
    leaf.say(b"LS+ svc\r\n")
    assert ask(source, leaf, mapped(b"r.1")) == b"LMSG svc %b 1\r\n?\r\n" % mapped(b"r.1")
    leaf.say(b"LMSG %b 2\r\nok\r\n" % mapped(b"r.1"))
    assert gateway.hear() == b"RMSG A %b 2\r\nok\r\n" % mapped(b"r.1")
    leaf.say(b"LMSG %b 2\r\nno\r\n" % mapped(b"r.1", ELSEWHERE))
    assert gateway.hear() == b""


def test_permissions_of_a_leaf_node_are_about_the_plain_reply(
    plane: DataPlane, account: Account, gateway: Peer
) -> None:
    allowed = permissions(Permissions(publish=SubjectPermission(allow=("r.>",))))
    leaf = plane.leaf(account, receive=allowed)
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


def test_a_service_behind_a_hub_answers_the_hub(plane: DataPlane, account: Account) -> None:
    """An import keeps the mapped reply; the response goes there."""
    exporter = plane.account("B")
    export = ExportedService(exporter, "singleton", 60.0)
    service = imported(account, export)
    hub = plane.leaf(account, spoke=True)
    hub.say(b"LS+ _GR_.>\r\n")
    curious, responder = plane.client(account), plane.client(exporter)
    curious.say(b"SUB > 1\r\n")
    responder.say(b"SUB svc 1\r\n")
    hub.hear()
    hub.say(b"LMSG svc %b 1\r\n?\r\n" % mapped(b"r.1"))
    reply = responder.hear().split()[3]
    curious.hear()
    responder.say(b"PUB %b 2\r\nok\r\n" % reply)
    assert hub.hear() == b"LMSG %b 2\r\nok\r\n" % mapped(b"r.1")
    assert curious.hear() == b""
    service.close()


# -- an answer arrives ---------------------------------------------------------------------------------------


def test_an_answer_arrives(
    plane: DataPlane, account: Account, other: int, source: Peer, replies: GatewayReplies
) -> None:
    """Its subscribers see the plain reply; groups get it, too, although it names none."""
    client = plane.client(account, other)
    client.say(b"SUB r.1 1\r\nSUB r.* g 2\r\n")
    source.say(b"RMSG A %b 2\r\nok\r\n" % mapped(b"r.1", HERE, SERVER))
    assert sorted(client.hear().split(b"ok\r\n")) == [b"", b"MSG r.1 1 2\r\n", b"MSG r.1 2 2\r\n"]
    source.say(b"HMSG A %b back 12 14\r\nNATS/1.0\r\n\r\nok\r\n" % mapped(b"r.1", HERE, OTHER))
    assert client.hear().count(b" back 2\r\nok\r\n") == 2


def test_answers_to_other_clusters_are_dropped(
    plane: DataPlane, account: Account, source: Peer, replies: GatewayReplies
) -> None:
    client = plane.client(account)
    client.say(b"SUB r.1 1\r\nSUB > 2\r\n")
    source.say(b"RMSG A %b 2\r\nok\r\n" % mapped(b"r.1", ELSEWHERE, SERVER))
    assert client.hear() == b""


def test_an_answer_is_forwarded_to_the_server_that_it_names(
    plane: DataPlane, account: Account, other: int, replies: GatewayReplies
) -> None:
    """As it came; this server delivers it to nobody."""
    source, route, client = plane.inbound(), plane.route(other), plane.client(account)
    client.say(b"SUB r.1 1\r\nSUB > 2\r\n")
    route.hear()
    replies.set_gateway_routes({name_hash(OTHER): route.session})  # type: ignore[dict-item]
    answer = mapped(b"r.1", HERE, OTHER)
    source.say(b"RMSG A %b 2\r\nok\r\n" % answer)
    assert (route.hear(), client.hear()) == (b"RMSG A %b 2\r\nok\r\n" % answer, b"")
    source.say(b"HMSG A %b back 12 14\r\nNATS/1.0\r\n\r\nok\r\n" % answer)
    assert route.hear() == b"HMSG A %b back 12 14\r\nNATS/1.0\r\n\r\nok\r\n" % answer
    route.say(b"RMSG A %b 2\r\nok\r\n" % answer)  # another server says that it is for this one
    assert (route.hear(), client.hear().count(b"ok")) == (b"", 2)


def test_an_answer_goes_on_to_those_who_want_it(
    plane: DataPlane, account: Account, source: Peer, gateway: Peer
) -> None:
    """Over gateways, too, unless it is a response of a service; other messages do not go there."""
    route, far = plane.route(), plane.outbound(cluster=ELSEWHERE)
    for peer in route, far, gateway:
        peer.say(b"RS+ A r.1\r\nRS+ A _R_.abc.>\r\n")
    source.say(b"RMSG A %b 2\r\nok\r\n" % mapped(b"r.1", HERE, SERVER))
    assert gateway.hear() == far.hear() == b"RMSG A r.1 2\r\nok\r\n"
    over = route.hear()
    source.say(b"RMSG A %b 2\r\nok\r\n" % mapped(b"_R_.abc.x", HERE, SERVER))
    source.say(b"RMSG A r.1 2\r\nok\r\n")
    assert (gateway.hear(), far.hear()) == (b"", b"")
    if isinstance(source.session, GatewaySession):
        assert over == b"RMSG A r.1 2\r\nok\r\n"


def test_a_response_finds_its_requester(plane: DataPlane, other: int, gateway: Peer) -> None:
    """Its subject is mapped as the replies of clients are."""
    importer, exporter = plane.account("I"), plane.account("X")
    export = ExportedService(exporter, "singleton", 60.0)
    service = imported(importer, export)
    gateway.say(b"RS+ X svc\r\n")
    client = plane.client(importer, other)
    client.say(b"SUB inbox 1\r\nPUB svc inbox 1\r\n?\r\n")
    client.hear()
    verb, account, subject, reply, *_ = gateway.hear().split()
    assert (verb, account, subject) == (b"HMSG", b"X", b"svc")
    assert reply.startswith(mapped(b"_R_.", HERE, SERVER))
    plane.inbound().say(b"RMSG X %b 2\r\nok\r\n" % reply)
    assert client.hear() == b"MSG inbox 1 2\r\nok\r\n"
    service.close()


# -- a request is sent ---------------------------------------------------------------------------------------


def request_sent(gateway: Peer, client: Peer, reply: bytes = b"r.1") -> bytes:
    """Have a client send a request; return the reply that goes over a gateway."""
    client.say(b"PUB far %b 1\r\n?\r\n" % reply)
    verb, _, subject, sent, size = gateway.hear().split(b"\r\n")[0].split()
    assert (verb, subject, size) == (b"RMSG", b"far", b"1")
    return sent


def test_the_reply_to_a_new_inbox_is_mapped(
    clock: HeldClock, plane: DataPlane, account: Account, other: int, gateway: Peer
) -> None:
    gateway.say(b"RS+ A far\r\n")
    route, client = plane.route(), plane.client(account, other)
    route.say(b"RS+ A far\r\n")
    client.say(b"SUB r.* 1\r\n")
    route.hear()
    ours = mapped(b"r.1", HERE, SERVER)
    assert request_sent(gateway, client) == ours
    assert route.hear() == b"RMSG A far r.1 1\r\n?\r\n"
    assert request_sent(gateway, client, b"s.1") == b"s.1"
    clock.move(1.9)
    assert request_sent(gateway, client) == ours
    clock.move(0.4)
    assert request_sent(gateway, client) == b"r.1"
    client.say(b"SUB r.1 g 2\r\n")
    assert request_sent(gateway, client) == ours
    client.say(b"UNSUB 2\r\n")
    assert request_sent(gateway, client) == b"r.1"


def test_whose_inbox_counts(plane: DataPlane, account: Account, gateway: Peer) -> None:
    """That of any client or leaf node of the account here, not of other servers nor of other accounts."""
    gateway.say(b"RS+ A far\r\n")
    client, elsewhere, leaf = plane.client(account), plane.client(plane.account("B")), plane.leaf(account)
    elsewhere.say(b"SUB r.1 1\r\n")
    plane.route().say(b"RS+ A r.1\r\n")
    assert request_sent(gateway, client) == b"r.1"
    leaf.say(b"LS+ r.1\r\n")
    assert request_sent(gateway, client) == mapped(b"r.1", HERE, SERVER)
    leaf.say(b"LS- r.1\r\n")
    assert request_sent(gateway, client) == b"r.1"
    plane.client(account).say(b"SUB r.1 1\r\n")
    assert request_sent(gateway, client) == mapped(b"r.1", HERE, SERVER)


def test_a_group_is_named_behind_the_mapped_reply(plane: DataPlane, account: Account, gateway: Peer) -> None:
    gateway.say(b"RS+ A far g 1\r\n")
    client = plane.client(account)
    client.say(b"SUB r.1 1\r\nPUB far r.1 1\r\n?\r\n")
    assert gateway.hear() == b"RMSG A far + %b g 1\r\n?\r\n" % mapped(b"r.1", HERE, SERVER)


def test_without_gateways_replies_stay(plane: DataPlane, account: Account) -> None:
    """They stay, too, while the server does not know its name yet."""
    gateway, client = plane.outbound(), plane.client(account)
    gateway.say(b"RS+ A far\r\n")
    client.say(b"SUB r.1 1\r\n")
    assert request_sent(gateway, client) == b"r.1"


def test_a_mapped_reply_is_not_mapped_again(plane: DataPlane, account: Account, gateway: Peer) -> None:
    gateway.say(b"RS+ A far\r\n")
    leaf = plane.leaf(account)
    leaf.say(b"LS+ _GR_.>\r\nLS+ r.>\r\nLMSG far %b 1\r\n?\r\n" % mapped(b"r.1"))
    assert gateway.hear() == b"RMSG A far %b 1\r\n?\r\n" % mapped(b"r.1")
