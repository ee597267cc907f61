"""What a route's session reads and writes, once the peer is registered."""

from __future__ import annotations

import gc

import pytest
from support.dataplane import DataPlane, flood, permissions
from support.process import resident

from gnats.connection.closed_state import ClosedState
from gnats.core.links.route_session import RouteSession
from gnats.core.routing.services import ExportedService, ImportedService
from gnats.core.runtime.inbox import EV_CLOSED, EV_CONNECT, EV_INFO, EV_PONG
from gnats.options.values.auth import Permissions, SubjectPermission

pytestmark = pytest.mark.timeout(60)


def test_interest_is_announced(plane: DataPlane, other: int) -> None:
    client = plane.client(plane.account("A"))
    client.say(b"SUB foo 1\r\nSUB foo 2\r\nSUB q.* g 3\r\nSUB q.* g 4\r\n")
    route = plane.route(other)
    assert sorted(route.hear().splitlines()) == [b"RS+ A foo", b"RS+ A q.* g 2"]
    client.say(b"SUB bar 5\r\nUNSUB 1\r\nUNSUB 4\r\n")
    assert route.hear() == b"RS+ A bar\r\nRS+ A q.* g 1\r\n"
    client.say(b"UNSUB 2\r\nUNSUB 3\r\n")
    assert route.hear() == b"RS- A foo\r\nRS- A q.* g\r\n"
    client.socket.close()
    assert route.hear() == b"RS- A bar\r\n"


def test_a_later_account_is_announced(plane: DataPlane, other: int) -> None:
    route = plane.route(other)
    client = plane.client(plane.account("B"))
    client.say(b"SUB foo 1\r\n")
    assert route.hear() == b"RS+ B foo\r\n"


def test_the_pool_decides(plane: DataPlane, other: int) -> None:
    # FNV-1a of $G modulo 3 is 2.
    client = plane.client(plane.account("$G"))
    client.say(b"SUB foo 1\r\n")
    routes = [plane.route(other, pool_index=index, pool_size=3) for index in range(3)]
    assert [route.hear() for route in routes] == [b"", b"", b"RS+ $G foo\r\n"]
    pinned = plane.route(other, account=b"$G", pool_index=0, pool_size=3, pinned=(b"$G",))
    rest = plane.route(other, pool_index=2, pool_size=3, pinned=(b"$G",))
    assert (pinned.hear(), rest.hear()) == (b"RS+ foo\r\n", b"")


def test_permissions_filter_interest(plane: DataPlane, other: int) -> None:
    client = plane.client(plane.account("A"))
    client.say(b"SUB open.a 1\r\nSUB secret.a 2\r\n")
    terms = permissions(
        Permissions(
            publish=SubjectPermission(deny=("secret.>",)), subscribe=SubjectPermission(deny=("own.>",))
        )
    )
    route = plane.route(other, permissions=terms)
    assert route.hear() == b"RS+ A open.a\r\n"
    route.say(b"RS+ A own.x\r\nRS+ A >\r\n")
    assert [row[0] for row in route.session.subscriptions()] == [b">"]
    client.say(b"PUB own.x 1\r\nx\r\nPUB other 1\r\ny\r\n")
    assert route.hear() == b"RMSG A other 1\r\ny\r\n"


def test_messages_reach_local_subscribers(plane: DataPlane, other: int) -> None:
    account = plane.account("A")
    client = plane.client(account, other)
    client.say(b"SUB foo.* 1\r\nSUB foo.> g 2\r\nSUB foo.a h 3\r\n")
    route = plane.route()
    route.hear()
    route.say(b"RMSG A foo.a 2\r\nhi\r\n")
    assert client.hear() == b"MSG foo.a 1 2\r\nhi\r\n"
    route.say(b"RMSG A foo.a | g 2\r\nhi\r\n")
    assert sorted(client.hear().split(b"hi\r\n")) == [b"", b"MSG foo.a 1 2\r\n", b"MSG foo.a 2 2\r\n"]
    route.say(b"RMSG A foo.a + r.x h g 2\r\nhi\r\n")
    assert len(client.hear().split(b"MSG foo.a ")) == 4
    route.say(b"RMSG A foo.a r.x 2\r\nhi\r\nRMSG B foo.a 2\r\nhi\r\nPUB foo.a 2\r\nhi\r\n")
    assert client.hear() == b"MSG foo.a 1 r.x 2\r\nhi\r\n"
    assert route.hear() == b""


def test_headers_are_for_those_who_want_them(plane: DataPlane, other: int) -> None:
    account = plane.account("A")
    client = plane.client(account, other)
    client.say(b"SUB foo 1\r\n")
    route = plane.route()
    route.hear()
    route.say(b"HMSG A foo r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert client.hear() == b"MSG foo 1 r 2\r\nhi\r\n"
    route.say(b"HMSG A foo 0 2\r\nhi\r\n")
    assert client.hear() == b"MSG foo 1 2\r\nhi\r\n"


def test_a_message_goes_to_each_server_once(plane: DataPlane, other: int) -> None:
    client = plane.client(plane.account("A"))
    routes = [plane.route(other), plane.route(other, headers=False), plane.route(), plane.route(account=b"A")]
    for route in routes[:3]:
        route.say(b"RS+ A foo\r\nRS+ A *\r\nRS+ A foo.bar\r\n")
    routes[3].say(b"RS+ foo\r\n")
    client.say(b"PUB foo 2\r\nhi\r\n")
    assert [route.hear() for route in routes] == [b"RMSG A foo 2\r\nhi\r\n"] * 3 + [b"RMSG foo 2\r\nhi\r\n"]
    client.say(b"PUB foo r 2\r\nhi\r\nPUB no.body 1\r\nx\r\n")
    assert [route.hear() for route in routes] == [b"RMSG A foo r 2\r\nhi\r\n"] * 3 + [
        b"RMSG foo r 2\r\nhi\r\n"
    ]


def test_groups_are_named(plane: DataPlane, other: int) -> None:
    client = plane.client(plane.account("A"))
    route = plane.route(other)
    route.say(b"RS+ A foo g1 1\r\nRS+ A foo g2 3\r\n")
    client.say(b"PUB foo 1\r\nx\r\nPUB foo r 1\r\ny\r\n")
    heard = route.hear()
    assert heard in (
        b"RMSG A foo | %b %b 1\r\nx\r\nRMSG A foo + r %b %b 1\r\ny\r\n" % (a, b, a, b)
        for a, b in ((b"g1", b"g2"), (b"g2", b"g1"))
    )


def test_a_group_is_shared_by_weight(plane: DataPlane, other: int) -> None:
    account = plane.account("A")
    client, member = plane.client(account), plane.client(account)
    member.say(b"SUB foo g 1\r\n")
    route = plane.route(other)
    route.hear()
    route.say(b"RS+ A foo g 3\r\n")
    client.say(b"PUB foo 1\r\nx\r\n" * 400)
    there, here = route.hear().count(b"RMSG"), member.hear().count(b"MSG")
    assert there + here == 400
    assert 230 < there < 370
    route.say(b"RS+ A foo g 0\r\n")
    client.say(b"PUB foo 1\r\nx\r\n" * 50)
    assert (route.hear().count(b"RMSG"), member.hear().count(b"MSG")) == (0, 50)


def test_local_members_come_first_for_a_message_of_a_route(plane: DataPlane, other: int) -> None:
    member = plane.client(plane.account("A"), other)
    member.say(b"SUB foo g 1\r\n")
    route, elsewhere = plane.route(), plane.route(other)
    elsewhere.say(b"RS+ A foo g 9\r\n")
    route.say(b"RMSG A foo | g 1\r\nx\r\n" * 20)
    assert member.hear().count(b"MSG") == 20
    member.say(b"UNSUB 1\r\n")
    route.say(b"RMSG A foo | g 1\r\nx\r\nRMSG A foo 1\r\nx\r\n")
    assert elsewhere.hear().count(b"RMSG A foo | g 1\r\nx\r\n") == 1


def test_local_members_share_alike_beside_remote_ones(plane: DataPlane, other: int) -> None:
    """nats-server draws among the local members alone (processMsgResults)."""
    account = plane.account("A")
    members = [plane.client(account, other) for _ in range(3)]
    members[0].say(b"SUB foo g 1\r\n")
    route, elsewhere = plane.route(), plane.route(other)
    elsewhere.say(b"RS+ A foo g 9\r\n")
    for member in members[1:]:
        member.say(b"SUB foo g 1\r\n")
    route.say(b"RMSG A foo | g 1\r\nx\r\n" * 600)
    counts = [member.hear().count(b"MSG") for member in members]
    assert sum(counts) == 600
    assert min(counts) > 120, counts


def test_what_comes_over_a_route_goes_over_no_other(plane: DataPlane, other: int) -> None:
    plane.account("A")
    route, elsewhere = plane.route(), plane.route(other)
    for one in route, elsewhere:
        one.say(b"RS+ A foo\r\n")
    route.say(b"RMSG A foo 1\r\nx\r\n")
    assert (route.hear(), elsewhere.hear()) == (b"", b"")


def test_a_requester_gets_no_503_while_a_server_is_interested(plane: DataPlane, other: int) -> None:
    client = plane.client(plane.account("A"))
    route = plane.route(other)
    route.say(b"RS+ A svc\r\n")
    client.say(b"SUB in 1\r\nPUB svc in 1\r\nx\r\n")
    assert route.hear() == b"RS+ A in\r\nRMSG A svc in 1\r\nx\r\n"
    route.say(b"RMSG A in 1\r\ny\r\n")
    assert client.hear() == b"MSG in 1 1\r\ny\r\n"


def test_a_message_never_overtakes_interest(plane: DataPlane, other: int) -> None:
    client = plane.client(plane.account("A"))
    route = plane.route(other)
    route.say(b"RS+ A svc\r\n")
    client.send(b"".join(b"SUB in.%d %d\r\nPUB svc in.%d 1\r\nx\r\n" % (n, n, n) for n in range(100)))
    known: set[bytes] = set()
    asked = 0
    for line in route.hear().splitlines():
        if line.startswith(b"RS+ "):
            known.add(line.split()[2])
        elif line.startswith(b"RMSG "):
            assert line.split()[3] in known
            asked += 1
    assert asked == 100


def test_streams_show_the_subject_behind_the_at_sign(plane: DataPlane, other: int) -> None:
    client = plane.client(plane.account("A"), other)
    client.say(b"SUB deliver 1\r\n")
    route = plane.route()
    route.hear()
    ack = b"$JS.ACK.S@1.C.1.2.3.4.5"
    route.say(b"RMSG A deliver %b@stored.a 1\r\nx\r\nRMSG A deliver %b 1\r\nx\r\n" % (ack, ack))
    assert client.hear() == b"MSG stored.a 1 %b 1\r\nx\r\nMSG deliver 1 %b 1\r\nx\r\n" % (ack, ack)


@pytest.mark.parametrize(
    ("line", "closes"),
    [
        (b"RS+ A foo bar", True),
        (b"RS+ A", True),
        (b"RS+ A foo g 1 2", True),
        (b"RS- A foo g 1", True),
        (b"RS- A", True),
        (b"RS+ A foo..bar", False),
        (b"RS+ NOPE foo", False),
        (b"RS- A nothing", False),
        (b"RS+ A foo g 999999999", False),
        (b"RS+ A foo g x", False),
        (b"SUB A foo", False),
        (b"A+ A", False),
        (b"A- A", False),
        (b"LS+ O A foo", False),
        (b"LS+ O A foo g 2", False),
        (b"LS- O A foo", False),
        (b"+OK", False),
        (b"MSG foo 1", True),
        (b"NONSENSE", True),
        (b"-ERR 'No'", True),
    ],
    ids=lambda value: value[:24].decode() if isinstance(value, bytes) else "",
)
def test_lines_that_close(plane: DataPlane, line: bytes, closes: bool) -> None:
    plane.account("A")
    route = plane.route()
    heard = route.say(line + b"\r\nPING\r\n")
    closed = plane.take(EV_CLOSED)
    assert bool(closed) == closes
    assert heard.endswith(b"PONG\r\n") != closes
    if b"foo..bar" in line:
        assert heard == b"-ERR 'Invalid Subscription'\r\nPONG\r\n"


def test_interest_goes_with_the_connection(plane: DataPlane, other: int) -> None:
    account = plane.account("A")
    route = plane.route(other)
    route.say(
        b"".join(b"RS+ A foo.%d\r\nRS+ A q.%d g 2\r\nLS+ O A foo.%d\r\n" % (n, n, n) for n in range(300))
    )
    assert account.sublist.count() == 900
    route.socket.close()
    plane.run()
    assert account.sublist.count() == 0


def test_interest_goes_with_the_account(plane: DataPlane, other: int) -> None:
    kept, lost = plane.account("A"), plane.account("B")
    client = plane.client(lost)
    client.say(b"SUB mine 1\r\n")
    route = plane.route(other)
    route.say(b"RS+ A foo\r\nRS+ B foo\r\nRS+ B bar g 2\r\n")
    plane.registry.remove(b"B")
    plane.run()
    assert (kept.sublist.count(), lost.sublist.count()) == (1, 1)
    again = plane.account("B")
    route.hear()
    route.say(b"RS+ B foo\r\nRS- B bar g\r\n")
    assert again.sublist.count() == 1


@pytest.mark.parametrize("count", [100, 1000, 4000])
def test_much_interest_goes_with_the_account(plane: DataPlane, other: int, count: int) -> None:
    """The table of subscriptions shrinks on the way."""
    kept, lost = plane.account("A"), plane.account("B")
    route = plane.route(other)
    route.say(b"RS+ A foo\r\n" + b"".join(b"RS+ B foo.%d\r\n" % n for n in range(count)))
    route.say(b"".join(b"RS+ A foo.%d\r\n" % n for n in range(20)))
    assert lost.sublist.count() == count
    plane.registry.remove(b"B")
    plane.run()
    assert (kept.sublist.count(), lost.sublist.count()) == (21, 0)


def test_verbs_wait_for_connect_and_info(plane: DataPlane) -> None:
    account = plane.account("A")
    peer = plane.waiting_route(expect_connect=True)
    session = peer.session
    assert isinstance(session, RouteSession)
    peer.say(b'CONNECT {"a":1}\r\nINFO {"b":2}\r\nRS+ A foo\r\nPING\r\n')
    assert [event[4] for event in plane.take(EV_CONNECT)] == [b'{"a":1}']
    assert not plane.take(EV_INFO)
    session.accept_connect()
    plane.run()
    assert [event[4] for event in plane.take(EV_INFO)] == [b'{"b":2}']
    assert account.sublist.count() == 0
    session.join(greeting=b"INFO {}\r\n", pool_index=-1, pool_size=1, headers=True, traces=True, measure=True)
    assert peer.hear() == b"INFO {}\r\nPING\r\nPONG\r\n"
    assert account.sublist.count() == 1
    assert not plane.take(EV_PONG)
    peer.say(b"PONG\r\nPONG\r\n")
    assert len(plane.take(EV_PONG)) == 1


def test_another_verb_before_connect_is_a_violation(plane: DataPlane) -> None:
    peer = plane.waiting_route(expect_connect=True)
    assert peer.say(b"INFO {}\r\n") == b"-ERR 'Authorization Violation'\r\n"
    assert [event[2] for event in plane.take(EV_CLOSED)] == [ClosedState.AUTHENTICATION_VIOLATION]


def test_permissions_change(plane: DataPlane, other: int) -> None:
    account = plane.account("A")
    client = plane.client(account)
    client.say(b"SUB a.1 1\r\nSUB b.1 g 2\r\nSUB c.1 3\r\n")
    no_a = Permissions(publish=SubjectPermission(deny=("a.>",)), subscribe=SubjectPermission(deny=("x.>",)))
    no_b = Permissions(publish=SubjectPermission(deny=("b.>",)), subscribe=SubjectPermission(deny=("y.>",)))
    route = plane.route(other, permissions=permissions(no_a))
    assert sorted(route.hear().splitlines()) == [b"RS+ A b.1 g 1", b"RS+ A c.1"]
    route.say(b"RS+ A x.1\r\nRS+ A y.1\r\nRS+ A z.1\r\n")
    route.session.set_permissions(permissions(no_b))
    client.send(b"SUB a.2 4\r\n")
    assert sorted(route.hear().splitlines()) == [b"RS+ A a.1", b"RS+ A a.2", b"RS- A b.1 g"]
    assert [row[0] for row in route.session.subscriptions()] == [b"z.1"]
    route.session.set_permissions(None)
    assert route.hear() == b"RS+ A b.1 g 1\r\n"


def test_interest_is_announced_again(plane: DataPlane, other: int) -> None:
    client = plane.client(plane.account("A"))
    client.say(b"SUB a 1\r\nSUB b g 2\r\n")
    route = plane.route(other)
    first = sorted(route.hear().splitlines())
    assert isinstance(route.session, RouteSession)
    route.session.announce_again()
    assert sorted(route.hear().splitlines()) == first == [b"RS+ A a", b"RS+ A b g 1"]
    client.say(b"UNSUB 1\r\n")
    assert route.hear() == b"RS- A a\r\n"


def test_a_change_that_is_undone_after_all_has_been_announced_again(plane: DataPlane, other: int) -> None:
    """The interest of a peer that reads nothing waits; what is announced meanwhile must not outlive it."""
    account = plane.account("A")
    client, publisher = plane.client(account), plane.client(account)
    route = plane.route(other, max_pending=8 << 20)
    route.say(b"RS+ A fill\r\n")
    flood(publisher, b"fill")
    client.say(b"SUB new 1\r\n")  # waits
    assert isinstance(route.session, RouteSession)
    route.session.announce_again()
    plane.run()
    client.say(b"UNSUB 1\r\nSUB last 2\r\n")
    lines = [line for line in route.hear().splitlines() if line.startswith(b"RS")]
    assert lines == [b"RS+ A new", b"RS+ A new", b"RS- A new", b"RS+ A last"]


def test_a_peer_that_knows_no_origins_takes_the_interest_of_leaf_nodes_for_ours(
    plane: DataPlane, other: int
) -> None:
    account = plane.account("A")
    client = plane.client(account)
    first, second = plane.leaf(account, cluster=b"L1"), plane.leaf(account, cluster=b"L2")
    route = plane.route(other)
    first.say(b"LS+ foo\r\nLS+ q g 2\r\n")
    assert route.hear() == b"RS+ A foo\r\nRS+ A q g 2\r\n"
    second.say(b"LS+ foo\r\nLS+ q g 3\r\n")
    client.say(b"SUB foo 1\r\nSUB q g 2\r\n")
    assert route.hear() == b"RS+ A q g 5\r\nRS+ A q g 6\r\n"
    assert sorted(plane.route(other).hear().splitlines()) == [b"RS+ A foo", b"RS+ A q g 6"]
    first.say(b"LS- foo\r\nLS- q g\r\n")
    client.say(b"UNSUB 1\r\nUNSUB 2\r\n")
    assert route.hear() == b"RS+ A q g 4\r\nRS+ A q g 3\r\n"
    second.say(b"LS- foo\r\nLS- q g\r\n")
    assert route.hear() == b"RS- A foo\r\nRS- A q g\r\n"


def test_an_account_leaves_a_pooled_connection(plane: DataPlane, other: int) -> None:
    account, rest = plane.account("A"), plane.account("B")
    client = plane.client(account)
    client.say(b"SUB a 1\r\n")
    route = plane.route(other, pool_index=0, pool_size=1, pinned=(b"P", b"Q"))
    session = route.session
    assert isinstance(session, RouteSession)
    route.say(b"RS+ A x\r\nRS+ B x\r\n")
    route.hear()
    session.drop_account(b"A")
    plane.run()
    assert (account.sublist.count(), rest.sublist.count()) == (1, 1)
    client.say(b"SUB b 2\r\n")
    assert route.say(b"RS+ A y\r\n") == b""  # the peer has told of it before it knew
    assert account.sublist.count() == 3
    session.drop_account(b"A")
    plane.run()
    assert account.sublist.count() == 2
    session.carry(b"A")
    session.carry(b"P")
    assert sorted(route.hear().splitlines()) == [b"RS+ A a", b"RS+ A b"]
    route.say(b"RS+ A y\r\n")
    assert account.sublist.count() == 3
    session.drop_account(b"Q")
    assert route.hear() == b""


def test_a_pinned_connection_keeps_its_account(plane: DataPlane, other: int) -> None:
    client = plane.client(plane.account("A"))
    route = plane.route(other, account=b"A", pool_index=0, pool_size=3)
    assert isinstance(route.session, RouteSession)
    route.session.drop_account(b"A")
    client.say(b"SUB a 1\r\n")
    assert route.hear() == b"RS+ a\r\n"


def test_a_pong_overtakes_messages(plane: DataPlane, other: int) -> None:
    client = plane.client(plane.account("A"))
    route = plane.route(other)
    route.say(b"RS+ A foo\r\n")
    message = b"PUB foo 30000\r\n" + bytes(30_000) + b"\r\n"
    for _ in range(100):
        client.send(message)
        plane.run()
    route.send(b"PING\r\n")
    plane.run()
    heard = route.hear()
    assert heard.count(b"RMSG A foo 30000\r\n") == 100
    assert heard.index(b"PONG\r\n") < len(heard) // 2
    assert len(heard) == 100 * (len(b"RMSG A foo 30000\r\n") + 30_002) + len(b"PONG\r\n")


def test_a_route_that_closes_is_not_joined(plane: DataPlane, other: int) -> None:
    """Else it would stay a sink of accounts and their interest when it has gone."""
    client = plane.client(plane.account("A"))
    client.say(b"SUB foo 1\r\n")
    peer = plane.waiting_route(other)
    session = peer.session
    assert isinstance(session, RouteSession)
    session.enqueue_proto(b"INFO " + b"x" * 8_000_000 + b"\r\n")  # more than the socket takes: it drains
    plane.run()
    session.close_connection(ClosedState.STALE_CONNECTION)
    plane.run()
    assert session.closed_reason == ClosedState.STALE_CONNECTION
    session.join(headers=True, traces=True, pool_index=-1, pool_size=1)
    plane.run()
    client.say(b"SUB bar 2\r\n")
    peer.socket.close()
    plane.run()
    del peer, session
    plane.events.clear()
    gc.collect()
    plane.run()
    plane.events.clear()
    gc.collect()
    for number in range(50):
        plane.account(f"B{number}")
    assert client.say(b"SUB foo.1 3\r\nPING\r\n").endswith(b"PONG\r\n")


def test_pongs_ahead_of_messages_take_little_memory(plane: DataPlane, other: int) -> None:
    client = plane.client(plane.account("A"))
    route = plane.route(other)
    route.say(b"RS+ A foo\r\n")
    for _ in range(300):
        client.send(b"PUB foo 30000\r\n" + bytes(30_000) + b"\r\n")
        plane.run()
    before = plane.pollers[other].state_now()["free_chunks"], route.session.snapshot()["pending_bytes"]
    assert before[1] > 1 << 20
    start = resident()
    for _ in range(20):
        route.send(b"PING\r\n" * 5000)
        plane.run()
    assert route.session.snapshot()["pending_bytes"] <= before[1] + 100_000 * len(b"PONG\r\n")
    assert resident() - start < 100_000_000  # 2 KiB each would be 200 MB
    assert route.hear().count(b"PONG\r\n") == 100_000


def test_interest_waits_for_a_slow_peer(plane: DataPlane, other: int) -> None:
    """Changes undo each other in the queue: a peer that reads nothing costs no more than the interest."""
    client = plane.client(plane.account("A"))
    route = plane.route(other, max_pending=1 << 20)
    subject = b"s" * 3000
    for number in range(2000):
        client.say(b"SUB %b.%d 1\r\n" % (subject, number % 10))
        client.say(b"UNSUB 1\r\n")
    assert route.session.snapshot()["pending_bytes"] < 1 << 20
    assert not route.session.closed_reason
    client.say(b"SUB last 2\r\n")
    lines = route.hear().splitlines()
    assert lines[-1] == b"RS+ A last"
    told: set[bytes] = set()
    for line in lines:
        (told.add if line.startswith(b"RS+") else told.remove)(line.split(b" ", 1)[1])
    assert told == {b"A last"}


def test_answers_of_services_reach_groups_and_other_servers(plane: DataPlane, other: int) -> None:
    exporter, importer = plane.account("EXP"), plane.account("IMP")
    service = ExportedService(exporter, "singleton", 60.0)
    imported = ImportedService(
        importer, service, b"svc", b"svc", None, use_published=False, share=False, to_system=False, sid=b"1"
    )
    client = plane.client(importer)
    route = plane.route(other)
    route.say(b"RS+ EXP svc\r\nRS+ IMP at.peer\r\n")
    for subscribe, reply in (b"SUB here 1\r\n", b"here"), (b"SUB group q 2\r\n", b"group"), (b"", b"at.peer"):
        client.say(subscribe + b"PUB svc %b 1\r\nx\r\n" % reply)
        request = next(line for line in route.hear().splitlines() if b"MSG EXP svc" in line)
        back = route.say(b"RMSG EXP %b 2\r\nok\r\n" % request.split()[3])
        heard = client.hear()
        assert (heard + back).endswith(b" 2\r\nok\r\n"), reply
        assert (b"RMSG IMP at.peer 2\r\n" in back) == (reply == b"at.peer")
    imported.close()
    service.close()
