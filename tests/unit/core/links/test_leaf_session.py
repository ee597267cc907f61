"""What the session of a leaf node reads and writes, once the peer is registered."""

from __future__ import annotations

import pytest
from support.dataplane import DataPlane, Peer, flood, permissions

from gnats.connection.closed_state import ClosedState
from gnats.core.accounts.account import Account
from gnats.core.links.leaf_session import LeafEvent, LeafSession
from gnats.core.routing.services import ExportedService, ImportedService
from gnats.core.runtime.inbox import EV_CLOSED, EV_CONNECT, EV_INFO, EV_LEAF
from gnats.options.values.auth import Permissions, SubjectPermission

pytestmark = pytest.mark.timeout(60)
LDS = b"LS+ $LDS.own\r\n"


def told(peer: Peer) -> list[bytes]:
    """Return the lines that have come, in order of the alphabet."""
    return sorted(peer.hear().splitlines())


def test_interest_is_announced(plane: DataPlane, account: Account, other: int) -> None:
    client = plane.client(account)
    client.say(b"SUB foo 1\r\nSUB foo 2\r\nSUB q.* g 3\r\nSUB q.* g 4\r\n")
    leaf = plane.leaf(account, other)
    assert told(leaf) == [b"LS+ $LDS.own", b"LS+ foo", b"LS+ q.* g 2"]
    client.say(b"SUB bar 5\r\nUNSUB 1\r\nUNSUB 4\r\n")
    assert leaf.hear() == b"LS+ bar\r\nLS+ q.* g 1\r\n"
    client.say(b"UNSUB 2\r\nUNSUB 3\r\n")
    assert leaf.hear() == b"LS- foo\r\nLS- q.* g\r\n"
    client.socket.close()
    assert leaf.hear() == b"LS- bar\r\n"


def test_only_its_account_is_announced(plane: DataPlane, account: Account, other: int) -> None:
    elsewhere = plane.client(plane.account("B"))
    leaf = plane.leaf(account, other)
    elsewhere.say(b"SUB foo 1\r\n")
    assert leaf.hear() == LDS


@pytest.mark.parametrize(
    ("spoke", "heard"),
    [
        # A hub is told of clients and of this server's own leaf nodes, a leaf node of everything.
        (True, [b"LS+ leaf", b"LS+ local"]),
        (False, [b"LS+ hub", b"LS+ leaf", b"LS+ local", b"LS+ route", b"LS+ routed.leaf"]),
    ],
    ids=["to a hub", "to a leaf node"],
)
@pytest.mark.parametrize("early", [True, False], ids=["before", "after"])
def test_whose_interest_is_announced(
    plane: DataPlane, account: Account, other: int, spoke: bool, heard: list[bytes], early: bool
) -> None:
    def subscribe() -> None:
        plane.client(account).say(b"SUB local 1\r\n")
        plane.leaf(account, cluster=b"L1", loop_subject=b"$LDS.1").say(b"LS+ leaf\r\n")
        plane.leaf(account, cluster=b"L2", loop_subject=b"$LDS.2", spoke=True).say(b"LS+ hub\r\n")
        plane.route(other, origins=2).say(b"RS+ A route\r\nLS+ L3 A routed.leaf\r\nLS+ MY A mine\r\n")

    if early:
        subscribe()
    leaf = plane.leaf(account, other, cluster=b"MY", spoke=spoke)
    if not early:
        subscribe()
    assert [line for line in told(leaf) if not line.startswith(b"LS+ $LDS")] == heard


def test_loop_subjects_reach_a_hub_from_everywhere(plane: DataPlane, account: Account, other: int) -> None:
    leaf = plane.leaf(account, other, cluster=b"MY", spoke=True)
    plane.leaf(account, cluster=b"L2", loop_subject=b"$LDS.own", spoke=True).say(b"LS+ $LDS.2\r\n")
    plane.route(other).say(b"RS+ A $LDS.3\r\n")
    assert leaf.hear() == LDS + b"LS+ $LDS.2\r\nLS+ $LDS.3\r\n"


def test_interest_of_several_kinds_is_one(plane: DataPlane, account: Account, other: int) -> None:
    leaf = plane.leaf(account, other, cluster=b"MY")
    leaf.hear()
    client = plane.client(account)
    second = plane.leaf(account, cluster=b"L1", loop_subject=b"$LDS.1")
    third = plane.leaf(account, cluster=b"L1", loop_subject=b"$LDS.1")
    own = plane.leaf(account, cluster=b"MY", loop_subject=b"$LDS.1")
    for peer in second, third, own:
        peer.hear()
    client.say(b"SUB foo 1\r\nSUB q g 2\r\n")
    assert leaf.hear() == b"LS+ foo\r\nLS+ q g 1\r\n"
    second.say(b"LS+ foo\r\nLS+ q g 3\r\n")
    assert leaf.hear() == b"LS+ q g 4\r\n"
    own.say(b"LS+ foo\r\nLS+ q g 7\r\n")
    leaf.say(b"LS+ foo\r\nLS+ q g 9\r\n")
    assert leaf.hear() == b""
    third.say(b"LS+ foo\r\n")
    client.say(b"UNSUB 1\r\nUNSUB 2\r\n")
    assert leaf.hear() == b"LS+ q g 3\r\n"
    second.say(b"LS- foo\r\nLS- q g\r\n")
    assert leaf.hear() == b"LS- q g\r\n"
    third.socket.close()
    assert leaf.hear() == b"LS- foo\r\n"


def test_an_isolated_leaf_node_hears_of_no_other(plane: DataPlane, account: Account, other: int) -> None:
    leaf = plane.leaf(account, other, cluster=b"MY", isolated=True)
    plane.leaf(account, cluster=b"L1", loop_subject=b"$LDS.1").say(b"LS+ foo\r\n")
    plane.client(account).say(b"SUB bar 1\r\n")
    assert leaf.hear() == LDS + b"LS+ bar\r\n"


def test_mapped_subjects_are_announced_whoever_subscribes(
    plane: DataPlane, account: Account, other: int
) -> None:
    client = plane.client(account)
    leaf = plane.leaf(account, other, mapped=(b"from", b"also"))
    assert told(leaf) == [b"LS+ $LDS.own", b"LS+ also", b"LS+ from"]
    client.say(b"SUB from 1\r\nSUB new 2\r\nSUB from g 3\r\n")
    assert leaf.hear() == b"LS+ new\r\nLS+ from g 1\r\n"
    client.say(b"UNSUB 1\r\n")
    assert leaf.hear() == b""
    assert isinstance(leaf.session, LeafSession)
    client.say(b"SUB also 4\r\n")
    leaf.session.set_mapped((b"other",))
    lines = leaf.hear().splitlines()
    assert lines == [b"LS+ other", b"LS- from"]
    client.say(b"UNSUB 4\r\nSUB other 5\r\n")
    assert leaf.hear() == b"LS- also\r\n"


def test_routes_hear_of_leaf_nodes_by_their_cluster(plane: DataPlane, account: Account, other: int) -> None:
    client = plane.client(account)
    leaf, twin = plane.leaf(account, cluster=b"L1"), plane.leaf(account, cluster=b"L1")
    third = plane.leaf(account, cluster=b"L2")
    hub = plane.leaf(account, cluster=b"H", spoke=True)
    route = plane.route(other, origins=2)
    old = plane.route(other, origins=1)
    assert route.hear() == old.hear() == b""
    leaf.say(b"LS+ foo\r\nLS+ q g 2\r\n")
    assert route.hear() == b"LS+ L1 A foo\r\nLS+ L1 A q g 2\r\n"
    twin.say(b"LS+ foo\r\nLS+ q g 3\r\n")
    assert route.hear() == b"LS+ L1 A q g 5\r\n"
    hub.say(b"LS+ foo\r\nLS+ q g 3\r\n")
    assert route.hear() == b""
    client.say(b"SUB foo 1\r\nSUB q g 2\r\n")
    third.say(b"LS+ foo\r\n")
    assert route.hear() == b"RS+ A foo\r\nRS+ A q g 1\r\nLS+ L2 A foo\r\n"
    late = plane.route(other, origins=2)
    assert told(late) == [
        b"LS+ L1 A foo", b"LS+ L1 A q g 5", b"LS+ L2 A foo", b"RS+ A foo", b"RS+ A q g 1"
    ]  # fmt: skip
    leaf.say(b"LS- foo\r\nLS- q g\r\n")
    third.socket.close()
    client.say(b"UNSUB 1\r\nUNSUB 2\r\n")
    assert route.hear() == b"LS+ L1 A q g 3\r\nLS- L2 A foo\r\nRS- A foo\r\nRS- A q g\r\n"
    twin.socket.close()
    assert told(route) == [b"LS- L1 A foo", b"LS- L1 A q g"]
    old.hear()
    leaf.say(b"LS+ x\r\nLS- x\r\n")
    twin = plane.leaf(account, cluster=b"L3")
    twin.say(b"LS+ y\r\n")
    assert old.hear() == b"LS+ L3 A y\r\n"
    twin.say(b"LS- y\r\n")
    assert old.hear() == b"LS- A y\r\n"


def test_messages_go_both_ways(plane: DataPlane, account: Account, other: int) -> None:
    client = plane.client(account, other)
    leaf = plane.leaf(account)
    client.say(b"SUB foo.* 1\r\nSUB foo.> g 2\r\n")
    leaf.hear()
    leaf.say(b"LMSG foo.a 2\r\nhi\r\n")
    assert client.hear() == b"MSG foo.a 1 2\r\nhi\r\n"
    leaf.say(b"LMSG foo.a + r g 2\r\nhi\r\n")
    assert client.hear() in (
        b"MSG foo.a 1 r 2\r\nhi\r\nMSG foo.a 2 r 2\r\nhi\r\n",
        b"MSG foo.a 2 r 2\r\nhi\r\nMSG foo.a 1 r 2\r\nhi\r\n",
    )
    leaf.say(b"HMSG foo.a r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert client.hear() == b"MSG foo.a 1 r 2\r\nhi\r\n"
    leaf.say(b"LS+ bar\r\nLS+ *\r\nLS+ bar h 1\r\nLS+ bar g 1\r\n")
    client.say(b"PUB bar 2\r\nhi\r\nPUB bar r 2\r\nhi\r\nPUB no.body 1\r\nx\r\n")
    heard = leaf.hear()
    assert heard in (
        b"LMSG bar | %b %b 2\r\nhi\r\nLMSG bar + r %b %b 2\r\nhi\r\n" % (a, b, a, b)
        for a, b in ((b"g", b"h"), (b"h", b"g"))
    )


def test_nothing_comes_back(plane: DataPlane, account: Account, other: int) -> None:
    leaf, twin = plane.leaf(account), plane.leaf(account, other)
    other_cluster = plane.leaf(account, other, cluster=b"L2")
    route = plane.route(other, origins=2)
    for peer in leaf, twin, other_cluster:
        peer.say(b"LS+ foo\r\n")
        peer.hear()
    route.say(b"RS+ A foo\r\n")
    for peer in route, leaf, twin, other_cluster:
        peer.hear()
    leaf.say(b"LMSG foo 2\r\nhi\r\nHMSG foo 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert leaf.hear() == twin.hear() == b""
    assert other_cluster.hear() == b"LMSG foo 2\r\nhi\r\nHMSG foo 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    assert route.hear() == b"LMSG L A foo 0 2\r\nhi\r\nLMSG L A foo 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    route.say(b"LMSG L A foo 0 2\r\nhi\r\n")
    assert (leaf.hear(), other_cluster.hear(), route.hear()) == (b"", b"LMSG foo 2\r\nhi\r\n", b"")
    route.say(b"RMSG A foo 2\r\nhi\r\n")
    assert leaf.hear() == twin.hear() == other_cluster.hear() == b"LMSG foo 2\r\nhi\r\n"


def test_what_a_hub_sends_stays_on_this_server(plane: DataPlane, account: Account, other: int) -> None:
    hub = plane.leaf(account, cluster=b"H", spoke=True)
    leaf = plane.leaf(account, other, cluster=b"L")
    client = plane.client(account, other)
    route = plane.route(other)
    for peer, line in (
        (leaf, b"LS+ foo\r\n"), (client, b"SUB foo 1\r\n"), (route, b"RS+ A foo\r\n"), (hub, b"LS+ foo\r\n")
    ):  # fmt: skip
        peer.say(line)
    for peer in leaf, client, route, hub:
        peer.hear()
    hub.say(b"LMSG foo 1\r\nx\r\n")
    assert (leaf.hear(), client.hear(), route.hear(), hub.hear()) == (
        b"LMSG foo 1\r\nx\r\n", b"MSG foo 1 1\r\nx\r\n", b"", b""
    )  # fmt: skip
    # What comes over a route has come to the hub from another server of the cluster.
    route.say(b"RMSG A foo 1\r\nx\r\n")
    assert (leaf.hear(), hub.hear()) == (b"LMSG foo 1\r\nx\r\n", b"")
    leaf.say(b"LMSG foo 1\r\nx\r\n")
    assert (hub.hear(), leaf.hear()) == (b"LMSG foo 1\r\nx\r\n", b"")
    assert route.hear() == b"RMSG A foo 1\r\nx\r\n"


def test_members_behind_leaf_nodes_come_second(plane: DataPlane, account: Account, other: int) -> None:
    leaf, second = plane.leaf(account, other), plane.leaf(account, cluster=b"L2")
    leaf.say(b"LS+ foo g 5\r\n")
    client = plane.client(account)
    publisher = plane.client(account)
    client.say(b"SUB foo g 1\r\n")
    for peer in leaf, second:
        peer.hear()
    publisher.say(b"PUB foo 1\r\nx\r\n" * 50)
    assert (client.hear().count(b"MSG"), leaf.hear()) == (50, b"")
    client.say(b"UNSUB 1\r\n")
    second.say(b"LS+ foo g 5\r\n")
    leaf.hear(), second.hear()
    publisher.say(b"PUB foo 1\r\nx\r\n" * 100)
    shares = [peer.hear().count(b"LMSG foo | g 1\r\n") for peer in (leaf, second)]
    assert sum(shares) == 100
    assert min(shares) > 15
    members = [client, plane.client(account, other), plane.client(account)]
    for member in members:
        member.say(b"SUB foo g 1\r\n")
    publisher.say(b"PUB foo 1\r\nx\r\n" * 300)
    shares = [member.hear().count(b"MSG") for member in members]
    assert sum(shares) == 300
    assert min(shares) > 50, shares
    for member in members:
        member.say(b"UNSUB 1\r\n")
    leaf.hear(), second.hear()
    leaf.say(b"LMSG foo | g 1\r\nx\r\n" * 10)
    assert (leaf.hear(), second.hear().count(b"LMSG foo | g 1\r\n")) == (b"", 10)
    route = plane.route(other, origins=2)
    route.hear()
    route.say(b"LMSG L A foo | g 0 1\r\nx\r\n" * 5)
    assert (leaf.hear(), second.hear().count(b"LMSG foo | g 1\r\n")) == (b"", 5)
    route.say(b"LS+ L3 A foo g 100\r\nRS+ A foo g 1\r\n")
    leaf.hear(), second.hear()
    publisher.say(b"PUB foo 1\r\nx\r\n" * 10)
    assert route.hear().count(b"RMSG A foo | g 1\r\n") == 10  # members of another server itself come first


def test_a_stream_import_is_mapped_for_a_leaf_node(plane: DataPlane, account: Account, other: int) -> None:
    exporter = plane.account("X")
    account.set_stream_imports([(exporter, b"st.a", b"im.a", None, False, False)])
    leaf = plane.leaf(account, other)
    leaf.say(b"LS+ im.a\r\nLS+ im.*\r\n")
    leaf.hear()
    plane.client(exporter).say(b"PUB st.a r 2\r\nhi\r\n")
    assert leaf.hear() == b"LMSG im.a r 2\r\nhi\r\n"


def test_the_weight_of_a_group_follows_into_other_accounts(
    plane: DataPlane, account: Account, other: int
) -> None:
    exporter = plane.account("X")
    account.set_stream_imports([(exporter, b"st.a", b"im.a", None, False, False)])
    leaf = plane.leaf(account, other, cluster=b"L1")
    route, before = plane.route(other, origins=3), plane.route(other, origins=2)
    route.hear(), before.hear()
    for weight in b"2", b"5":
        leaf.say(b"LS+ im.a g %b\r\n" % weight)
        assert told(route) == [b"LS+ L1 A im.a g %b" % weight, b"LS+ _ X st.a g %b" % weight]
        assert told(before) == [b"LS+ L1 A im.a g %b" % weight, b"RS+ X st.a g %b" % weight]


def test_an_import_leads_back_to_the_same_cluster(plane: DataPlane, account: Account, other: int) -> None:
    """Its leaf nodes have connections to both accounts; within one account nothing comes back."""
    exporter = plane.account("X")
    account.set_stream_imports([(exporter, b"st.a", b"im.a", None, False, False)])
    importing, exporting = plane.leaf(account, other), plane.leaf(exporter)
    twin, route = plane.leaf(exporter, other), plane.route(other, origins=3)
    for peer in importing, exporting, twin, route:
        peer.hear()
    importing.say(b"LS+ im.a\r\n")
    assert exporting.hear() == twin.hear() == b"LS+ st.a\r\n"
    twin.say(b"LS+ st.a\r\n")
    assert exporting.hear() == b""
    assert told(route) == [b"LS+ L A im.a", b"LS+ L X st.a", b"LS+ _ X st.a"]
    exporting.say(b"LMSG st.a 1\r\nx\r\n")
    assert (importing.hear(), twin.hear(), exporting.hear()) == (b"LMSG im.a 1\r\nx\r\n", b"", b"")
    route.say(b"LMSG L X st.a 0 1\r\nx\r\n")
    assert (importing.hear(), twin.hear()) == (b"LMSG im.a 1\r\nx\r\n", b"")
    importing.say(b"LS- im.a\r\n")
    assert told(route) == [b"LS- L A im.a", b"LS- _ X st.a"]
    assert exporting.hear() == b"LS- st.a\r\n"


def test_interest_of_leaf_nodes_without_a_cluster(plane: DataPlane, account: Account, other: int) -> None:
    """Routes are told that it is a leaf node's if they know how: such members come second."""
    route, before = plane.route(other, origins=3), plane.route(other, origins=2)
    leaf, twin = plane.leaf(account, cluster=b""), plane.leaf(account, cluster=b"")
    for peer in route, before, leaf, twin:
        peer.hear()
    leaf.say(b"LS+ foo g 2\r\nLS+ bar\r\n")
    twin.say(b"LS+ foo g 3\r\nLS+ bar\r\n")
    assert told(route)[-1] == b"LS+ _ A foo g 5"
    assert told(before)[-1] == b"RS+ A foo g 5"
    leaf.say(b"LS- foo g\r\nLS- bar\r\n")
    assert (told(route), told(before)) == ([b"LS+ _ A foo g 3"], [b"RS+ A foo g 3"])
    twin.say(b"LS- foo g\r\nLS- bar\r\n")
    assert told(route) == [b"LS- _ A bar", b"LS- _ A foo g"]


def test_members_behind_links_are_drawn_by_weight(plane: DataPlane, account: Account, other: int) -> None:
    routes = plane.route(other), plane.route(other)
    for route, weight in zip(routes, (1, 1_000_000), strict=True):
        route.say(b"RS+ A foo g %d\r\n" % weight)
        route.hear()
    plane.client(account).say(b"PUB foo 1\r\nx\r\n" * 1000)
    light, heavy = (route.hear().count(b"RMSG") for route in routes)
    assert light + heavy == 1000
    assert light < 10


def test_permissions_of_a_leaf_node(plane: DataPlane, account: Account, other: int) -> None:
    client = plane.client(account)
    client.say(b"SUB up.a 1\r\nSUB no.a 2\r\nSUB > 3\r\n")
    terms = permissions(
        Permissions(
            publish=SubjectPermission(allow=("down.>",)), subscribe=SubjectPermission(allow=("up.>",))
        )
    )
    receive = permissions(Permissions(publish=SubjectPermission(allow=("up.>",))))
    leaf = plane.leaf(account, other, permissions=terms, receive=receive)
    assert told(leaf) == [b"LS+ $LDS.own", b"LS+ >", b"LS+ up.a"]
    leaf.say(b"LS+ down.x\r\nLS+ >\r\n")
    client.say(b"PUB down.x 1\r\nx\r\nPUB other 1\r\ny\r\n")
    client.hear()
    assert leaf.hear() == b"LMSG down.x 1\r\nx\r\n"
    leaf.say(b"LMSG up.a 1\r\nx\r\nLMSG $JS.ACK.x 1\r\nx\r\n")
    assert client.hear().count(b"MSG") == 3
    leaf.say(b"LMSG down.a 1\r\nx\r\nLMSG up.a 1\r\nx\r\n")
    assert client.hear() == b""
    assert [event[2:] for event in plane.take(EV_LEAF)] == [(LeafEvent.LEAF_PUBLISH_DENIED, 0, b"down.a")]
    second = plane.leaf(account, other, permissions=terms)
    second.say(b"LS+ up.b\r\n")
    assert [event[2:] for event in plane.take(EV_LEAF)] == [(LeafEvent.LEAF_SUBSCRIBE_DENIED, 0, b"up.b")]
    for peer in leaf, second:
        peer.session.close_connection(ClosedState.PROTOCOL_VIOLATION)


def test_permissions_of_a_hub(plane: DataPlane, account: Account, other: int) -> None:
    client = plane.client(account)
    client.say(b"SUB > 3\r\nSUB in.a 4\r\n")
    terms = permissions(
        Permissions(publish=SubjectPermission(deny=("out.no",)), subscribe=SubjectPermission(deny=("in.no",)))
    )
    hub = plane.leaf(account, other, spoke=True, permissions=terms)
    hub.say(b"LMSG in.no 1\r\nx\r\nLMSG in.yes 1\r\nx\r\n")
    assert client.hear() == b"MSG in.yes 3 1\r\nx\r\n"
    hub.hear()
    hub.say(b"LS+ out.no\r\nLS+ out.*\r\n")
    client.say(b"PUB out.no 1\r\nx\r\nPUB out.yes 1\r\nx\r\n")
    assert hub.hear() == b"LMSG out.yes 1\r\nx\r\n"
    assert not plane.take(EV_LEAF)


def test_permissions_change(plane: DataPlane, account: Account, other: int) -> None:
    client = plane.client(account)
    client.say(b"SUB a 1\r\nSUB b 2\r\nSUB q g 3\r\n")
    hub = plane.leaf(account, other, spoke=True)
    hub.say(b"LS+ x\r\nLS+ y\r\nLS+ *\r\n")
    hub.hear()
    assert isinstance(hub.session, LeafSession)
    hub.session.set_permissions(
        permissions(
            Permissions(publish=SubjectPermission(deny=("x",)), subscribe=SubjectPermission(deny=("a", "q")))
        )
    )
    assert told(hub) == [b"LS- a", b"LS- q g"]
    assert sorted(row[0] for row in hub.session.subscriptions()) == [b"*", b"y"]
    client.say(b"UNSUB 1\r\nSUB a 9\r\n")
    assert hub.hear() == b""
    hub.session.set_permissions(None)
    assert told(hub) == [b"LS+ a", b"LS+ q g 1"]


def test_new_permissions_end_much_interest(plane: DataPlane, account: Account, other: int) -> None:
    """The table of subscriptions shrinks on the way."""
    leaf = plane.leaf(account, other, cluster=b"L1")
    assert isinstance(leaf.session, LeafSession)
    leaf.say(b"".join(b"LS+ foo.%d\r\n" % n for n in range(3000)) + b"LS+ bar\r\n")
    assert account.sublist.count() == 3001
    leaf.session.set_permissions(permissions(Permissions(publish=SubjectPermission(deny=("foo.>",)))))
    plane.run()
    assert account.sublist.count() == 1


def test_mapped_subjects_follow_permissions(plane: DataPlane, account: Account, other: int) -> None:
    """A spoke announces them as far as it may; a hub always does."""
    hub = plane.leaf(account, other, spoke=True, mapped=(b"from", b"also"))
    leaf = plane.leaf(account, other, loop_subject=b"$LDS.1", mapped=(b"from",))
    hub.hear(), leaf.hear()
    terms = permissions(Permissions(subscribe=SubjectPermission(deny=("from",))))
    for peer in hub, leaf:
        assert isinstance(peer.session, LeafSession)
        peer.session.set_permissions(terms)
    assert (hub.hear(), leaf.hear()) == (b"LS- from\r\n", b"")
    plane.client(account).say(b"SUB from 1\r\n")
    assert (hub.hear(), leaf.hear()) == (b"", b"")
    for peer in hub, leaf:
        assert isinstance(peer.session, LeafSession)
        peer.session.set_permissions(None)
    assert (hub.hear(), leaf.hear()) == (b"LS+ from\r\n", b"")


def test_what_is_mapped_no_more_is_announced_if_it_may_be(
    plane: DataPlane, account: Account, other: int
) -> None:
    terms = permissions(Permissions(subscribe=SubjectPermission(deny=("from",))))
    leaf = plane.leaf(account, other, mapped=(b"from", b"also"), permissions=terms)
    plane.client(account).say(b"SUB from 1\r\nSUB also 2\r\n")
    leaf.hear()
    assert isinstance(leaf.session, LeafSession)
    leaf.session.set_mapped(())
    assert leaf.hear() == b"LS- from\r\n"


@pytest.mark.parametrize("what", ["mapped", "permissions"])
def test_a_change_that_is_undone_after_all_has_been_announced_again(
    plane: DataPlane, account: Account, other: int, what: str
) -> None:
    """The interest of a peer that reads nothing waits; what is announced meanwhile must not outlive it."""
    leaf = plane.waiting_leaf(other, max_pending=8 << 20)
    session = leaf.session
    assert isinstance(session, LeafSession)
    terms = {"headers": True, "traces": True, "loop_subject": b"$LDS.own"}
    session.join(account, cluster=b"L", spoke=False, isolated=False, **terms)  # type: ignore[arg-type]
    leaf.hear()
    leaf.say(b"LS+ fill\r\n")
    flood(plane.client(account), b"fill")
    client = plane.client(account)
    client.say(b"SUB new 1\r\n")  # waits
    if what == "mapped":
        session.set_mapped((b"from",))
    else:
        session.set_permissions(permissions(Permissions(subscribe=SubjectPermission(deny=("other",)))))
    plane.run()
    client.say(b"UNSUB 1\r\nSUB last 2\r\n")
    known = set()
    for line in leaf.hear().splitlines():
        if line.startswith(b"LS+ "):
            known.add(line[4:])
        elif line.startswith(b"LS- "):
            known.discard(line[4:])
    assert known - {b"from"} == {b"last"}


def test_a_loop_is_noticed(plane: DataPlane, account: Account, other: int) -> None:
    leaf = plane.leaf(account, other)
    leaf.say(b"LS+ $LDS.other\r\nLS+ $LDS.own\r\nLS+ more\r\n")
    assert [event[2:] for event in plane.take(EV_LEAF)] == [(LeafEvent.LEAF_LOOP, 0, b"$LDS.own")]
    assert [row[0] for row in leaf.session.subscriptions()] == [b"$LDS.other"]
    leaf.session.close_connection(ClosedState.PROTOCOL_VIOLATION)


def test_an_error_of_the_peer_is_reported(plane: DataPlane, account: Account, other: int) -> None:
    leaf = plane.leaf(account, other)
    leaf.say(b"-ERR 'Loop detected'\r\nLS+ more\r\n")
    assert [event[2:] for event in plane.take(EV_LEAF)] == [(LeafEvent.LEAF_ERROR, 0, b"'Loop detected'")]
    assert leaf.session.subscriptions() == []
    leaf.session.close_connection(ClosedState.PARSE_ERROR)


@pytest.mark.parametrize("line", [b"LS+ foo", b"LS- foo"])
def test_interest_before_the_peer_is_registered(plane: DataPlane, other: int, line: bytes) -> None:
    leaf = plane.waiting_leaf(other)
    assert leaf.say(line + b"\r\n") == b"-ERR 'Authorization Violation'\r\n"
    assert [event[2] for event in plane.take(EV_CLOSED)] == [ClosedState.PROTOCOL_VIOLATION]


def test_messages_before_the_peer_is_registered(plane: DataPlane, account: Account, other: int) -> None:
    client = plane.client(account)
    client.say(b"SUB > 1\r\n")
    leaf = plane.waiting_leaf(other)
    assert leaf.say(b"LMSG foo 1\r\nx\r\nPING\r\n") == b"PONG\r\n"
    assert client.hear() == b""


def test_a_peer_that_negotiates_may_send_info_first(plane: DataPlane, other: int) -> None:
    leaf = plane.waiting_leaf(other, expect_connect=True, negotiates=True)
    leaf.say(b"INFO {}\r\nCONNECT {}\r\n")
    assert [event[0] for event in plane.events] == [12, EV_INFO]
    leaf.session.resume()
    plane.run()
    assert len(plane.take(EV_CONNECT)) == 1
    leaf.session.close_connection(ClosedState.CLIENT_CLOSED)
    strict = plane.waiting_leaf(other, expect_connect=True)
    assert strict.say(b"INFO {}\r\n") == b"-ERR 'Authorization Violation'\r\n"


@pytest.mark.parametrize("line", [b"LS+", b"LS+ foo g", b"LS+ foo g 1 2", b"LS-", b"LS- foo g 1"])
def test_bad_lines_close_the_connection(plane: DataPlane, account: Account, other: int, line: bytes) -> None:
    leaf = plane.leaf(account, other)
    leaf.say(line + b"\r\n")
    assert [event[2] for event in plane.take(EV_CLOSED)] == [ClosedState.PROTOCOL_VIOLATION]


def test_bad_subjects_and_weights(plane: DataPlane, account: Account, other: int) -> None:
    leaf = plane.leaf(account, other)
    leaf.hear()
    assert leaf.say(b"LS+ a..b\r\n") == b"-ERR 'Invalid Subscription'\r\n"
    leaf.say(b"LS+ a g 0\r\nLS+ b g -1\r\nLS+ c g 999999999\r\nLS+ d g 9999999999\r\n")
    plane.client(account).say(b"PUB a 1\r\nx\r\nPUB b 1\r\nx\r\nPUB c 1\r\nx\r\nPUB d 1\r\nx\r\n")
    assert leaf.hear() == b"LMSG c | g 1\r\nx\r\n"
    leaf.say(b"LS+ c g 0\r\n")
    plane.client(account).say(b"PUB c 1\r\nx\r\n")
    assert leaf.hear() == b""


def test_limits(plane: DataPlane, account: Account, other: int) -> None:
    leaf = plane.leaf(account, other, max_subs=2, max_payload=4)
    leaf.hear()
    assert leaf.say(b"LS+ a\r\nLS+ b\r\nLS+ c\r\nLS+ a\r\n") == b"-ERR 'maximum subscriptions exceeded'\r\n"
    assert leaf.say(b"LMSG a 5\r\n") == b"-ERR 'Maximum Payload Violation'\r\n"
    assert [event[2] for event in plane.take(EV_CLOSED)] == [ClosedState.MAX_PAYLOAD_EXCEEDED]


def test_a_service_is_used_over_a_leaf_node(plane: DataPlane, account: Account, other: int) -> None:
    """The importing account is told of to the peer; its request is answered there."""
    serving = plane.account("S")
    imported = ImportedService(
        account, ExportedService(serving, "singleton", 60.0), b"ask", b"serve", None,
        use_published=False, share=False, to_system=False, sid=b"1",
    )  # fmt: skip
    leaf = plane.leaf(account, other)
    assert told(leaf) == [b"LS+ $LDS.own", b"LS+ ask"]
    responder = plane.client(serving)
    responder.say(b"SUB serve g 1\r\n")
    leaf.say(b"LS+ reply\r\n")
    leaf.say(b"LMSG ask reply 2\r\nhi\r\n")
    request = responder.hear()
    assert request.startswith(b"MSG serve 1 _R_.")
    reply = request.split()[3]
    responder.say(b"PUB " + reply + b" 2\r\nok\r\n")
    assert leaf.hear() == b"LMSG reply 2\r\nok\r\n"
    imported.close()


def test_messages_of_a_stream_show_their_subject(plane: DataPlane, account: Account, other: int) -> None:
    client = plane.client(account)
    client.say(b"SUB deliver 1\r\n")
    leaf = plane.leaf(account, other)
    leaf.hear()
    leaf.say(b"LMSG deliver $JS.ACK.S.C.1.1.1.1.1@orders.1 2\r\nhi\r\n")
    assert client.hear() == b"MSG orders.1 1 $JS.ACK.S.C.1.1.1.1.1 2\r\nhi\r\n"


def test_leaf_nodes_without_a_cluster_are_none_of_one(plane: DataPlane, account: Account, other: int) -> None:
    """Two servers in no cluster hear each other; routes are told of them as of this server itself."""
    leaf, twin = plane.leaf(account, cluster=b""), plane.leaf(account, other, cluster=b"")
    route = plane.route(other, origins=2)
    leaf.say(b"LS+ foo\r\nLS+ q g 2\r\n")
    assert twin.hear() == LDS + b"LS+ foo\r\nLS+ q g 2\r\n"
    assert route.hear() == b"RS+ A foo\r\nRS+ A q g 2\r\n"
    twin.say(b"LS+ foo\r\nLS+ q g 3\r\n")
    assert route.hear() == b"RS+ A q g 5\r\n"
    client = plane.client(account)
    client.say(b"SUB foo 1\r\nSUB q g 2\r\nSUB only 3\r\n")
    assert route.hear() == b"RS+ A q g 6\r\nRS+ A only\r\n"
    route.say(b"RS+ A foo\r\n")
    for peer in leaf, twin:
        peer.hear()
    leaf.say(b"LMSG foo 2\r\nhi\r\n")
    assert (leaf.hear(), twin.hear(), route.hear()) == (
        b"", b"LMSG foo 2\r\nhi\r\n", b"RMSG A foo 2\r\nhi\r\n"
    )  # fmt: skip
    client.socket.close()
    leaf.say(b"LS- foo\r\nLS- q g\r\n")
    assert told(route) == [b"RS+ A q g 3", b"RS- A only"]
    twin.socket.close()
    assert told(route) == [b"RS- A foo", b"RS- A q g"]
