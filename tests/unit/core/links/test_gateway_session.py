"""What a gateway's session reads and writes, once the peer is registered."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import pytest
from support.dataplane import COMMAND, DataPlane, Peer

from gnats.connection.closed_state import ClosedState
from gnats.core.accounts.account import Account
from gnats.core.links.gateway_session import GatewaySession
from gnats.core.routing.services import ExportedService, ImportedService
from gnats.core.runtime.inbox import EV_CLOSED, EV_CONNECT, EV_INFO, EV_LOG, EV_PONG

pytestmark = pytest.mark.timeout(60)

START, COMPLETE = 2, 3


def read(line: bytes) -> bytes | tuple[int, str]:
    """Return a line of interest, or the number and the account of an INFO command."""
    if not line.startswith(b"INFO "):
        return line
    info = json.loads(line[5:])
    return info["gateway_cmd"], base64.b64decode(info["gateway_cmd_payload"]).decode()


def told(peer: Peer) -> list[bytes | tuple[int, str]]:
    """Return the lines that have come."""
    return [read(line) for line in peer.hear().splitlines()]


def ready(peer: Peer) -> Peer:
    """Forget what has come so far."""
    peer.hear()
    return peer


def reasons(plane: DataPlane) -> list[int]:
    return [event[2] for event in plane.take(EV_CLOSED)]


# -- announcing ----------------------------------------------------------------------------------------------


def test_all_accounts_are_announced_between_commands(plane: DataPlane, account: Account, other: int) -> None:
    elsewhere = plane.account("B")
    plane.account("empty")
    plane.client(account).say(b"SUB foo 1\r\nSUB foo 2\r\nSUB q.* g 3\r\nSUB q.* g 4\r\n")
    plane.client(elsewhere).say(b"SUB bar 1\r\n")
    heard = told(plane.inbound(other))
    for name, lines in ("A", {b"RS+ A foo", b"RS+ A q.* g 1"}), ("B", {b"RS+ B bar"}), ("empty", set()):
        start, end = heard.index((START, name)), heard.index((COMPLETE, name))
        own = [line for line in heard if isinstance(line, bytes) and line.split()[1] == name.encode()]
        assert set(own) == lines
        assert len(own) == len(lines)
        assert set(own) <= set(heard[start:end])
    assert len(heard) == 3 + 2 * 3


def test_changes_are_announced(plane: DataPlane, account: Account, other: int) -> None:
    gateway = ready(plane.inbound(other))
    client = plane.client(account)
    client.say(b"SUB foo 1\r\nSUB foo 2\r\nSUB q g 3\r\nSUB q g 4\r\n")
    assert told(gateway) == [b"RS+ A foo", b"RS+ A q g 1"]
    client.say(b"UNSUB 1\r\nUNSUB 3\r\n")
    assert told(gateway) == []
    client.say(b"UNSUB 2\r\n")
    assert told(gateway) == [b"RS- A foo"]
    client.socket.close()
    assert told(gateway) == [b"RS- A q g"]


def test_a_pong_follows_all_interest(plane: DataPlane, account: Account, other: int) -> None:
    """Also what the session's poller has not been signalled of yet."""
    gateway, client = ready(plane.inbound(other)), ready(plane.client(account))
    for n in range(50):
        client.send(b"SUB foo.%d %d\r\n" % (n, n))
        gateway.send(b"PING\r\n")
        assert gateway.hear() == b"RS+ A foo.%d\r\nPONG\r\n" % n


def test_a_later_account_is_announced(plane: DataPlane, other: int) -> None:
    gateway = plane.inbound(other)
    assert told(gateway) == []
    account = plane.account("B")
    assert told(gateway) == [(START, "B"), (COMPLETE, "B")]
    plane.client(account).say(b"SUB foo 1\r\n")
    assert told(gateway) == [b"RS+ B foo"]


def test_an_account_comes_with_its_interest(plane: DataPlane, other: int) -> None:
    """One that has been removed, and still has subscriptions, is added again."""
    gateway = plane.inbound(other)
    account = plane.account("B")
    plane.client(account).say(b"SUB foo 1\r\nSUB q g 2\r\n")
    gateway.hear()
    plane.registry.remove(b"B")
    assert told(gateway) == []
    plane.registry.add(b"B", account)
    heard = told(gateway)
    assert (heard[0], heard[-1]) == ((START, "B"), (COMPLETE, "B"))
    assert set(heard[1:-1]) == {b"RS+ B foo", b"RS+ B q g 1"}


@pytest.mark.parametrize("name", ["a", "ab", "abc", "äöü", "x" * 700, "~\x7f" * 30])
def test_names_of_any_length_are_encoded(plane: DataPlane, other: int, name: str) -> None:
    gateway = plane.inbound(other)
    client = plane.client(plane.account(name))
    assert told(gateway) == [(START, name), (COMPLETE, name)]
    subject = b"s" * 900
    client.say(b"SUB %b 1\r\nSUB %b g 2\r\n" % (subject, subject))
    assert told(gateway) == [
        b"RS+ %b %b" % (name.encode(), subject),
        b"RS+ %b %b g 1" % (name.encode(), subject),
    ]


@pytest.mark.parametrize("early", [True, False], ids=["before", "after"])
def test_whose_interest_is_announced(plane: DataPlane, account: Account, other: int, early: bool) -> None:
    def subscribe() -> None:
        plane.client(account).say(b"SUB local 1\r\n")
        plane.leaf(account, cluster=b"L1", loop_subject=b"$LDS.1").say(b"LS+ leaf\r\n")
        plane.leaf(account, cluster=b"L2", loop_subject=b"$LDS.2", spoke=True).say(b"LS+ hub\r\n")
        plane.route(other).say(b"RS+ A route\r\nLS+ L3 A routed.leaf\r\n")
        plane.outbound(other, cluster=b"H").say(b"RS+ A gateway\r\nRS+ A gateway g 1\r\n")

    if early:
        subscribe()
    gateway = plane.inbound(other)
    if not early:
        subscribe()
    heard = [line for line in told(gateway) if isinstance(line, bytes)]
    assert sorted(heard) == [b"RS+ A leaf", b"RS+ A local", b"RS+ A route", b"RS+ A routed.leaf"]


def test_interest_of_several_kinds_is_one(plane: DataPlane, account: Account, other: int) -> None:
    gateway = ready(plane.inbound(other))
    client, route = plane.client(account), plane.route(other)
    leaf = plane.leaf(account, cluster=b"L1")
    elsewhere = plane.outbound(cluster=b"H")
    elsewhere.say(b"RS+ A foo\r\nRS+ A q g 1\r\n")
    assert told(gateway) == []
    route.say(b"RS+ A foo\r\nRS+ A q g 3\r\n")
    assert told(gateway) == [b"RS+ A foo", b"RS+ A q g 1"]
    client.say(b"SUB foo 1\r\nSUB q g 2\r\n")
    leaf.say(b"LS+ foo\r\nLS+ q g 2\r\n")
    route.say(b"RS+ A q g 5\r\n")
    client.say(b"UNSUB 1\r\nUNSUB 2\r\n")
    route.socket.close()
    assert told(gateway) == []
    leaf.say(b"LS- foo\r\nLS- q g\r\n")
    assert told(gateway) == [b"RS- A foo", b"RS- A q g"]
    client.say(b"SUB foo 3\r\n")
    assert told(gateway) == [b"RS+ A foo"]


def test_imported_services_are_no_interest(plane: DataPlane, account: Account, other: int) -> None:
    gateway = ready(plane.inbound(other))
    exporter = plane.account("S")
    imported = ImportedService(
        account, ExportedService(exporter, "singleton", 60.0), b"from", b"to", None,
        use_published=False, share=False, to_system=False, sid=b"1",
    )  # fmt: skip
    client = plane.client(account)
    gateway.hear()
    client.say(b"SUB from 1\r\n")
    assert told(gateway) == [b"RS+ A from"]
    client.say(b"UNSUB 1\r\n")
    assert told(gateway) == [b"RS- A from"]
    imported.close()


def test_gateways_interest_reaches_leaf_nodes_and_no_route(
    plane: DataPlane, account: Account, other: int
) -> None:
    route = ready(plane.route(other))
    leaf = ready(plane.leaf(account, cluster=b"L1"))
    hub = ready(plane.leaf(account, cluster=b"L2", spoke=True, loop_subject=b"$LDS.h"))
    route.hear()
    gateway = plane.outbound(other)
    gateway.say(b"RS+ A foo\r\nRS+ A q g 1\r\n")
    assert (route.hear(), hub.hear()) == (b"", b"")
    assert leaf.hear() == b"LS+ foo\r\nLS+ q g 1\r\n"
    gateway.say(b"RS- A foo\r\n")
    assert leaf.hear() == b"LS- foo\r\n"
    gateway.socket.close()
    assert leaf.hear() == b"LS- q g\r\n"
    assert route.hear() == b""


# -- the handshake, and lines that close ---------------------------------------------------------------------


def test_verbs_wait_for_connect_and_info(plane: DataPlane, account: Account) -> None:
    client = plane.client(account)
    client.say(b"SUB foo 1\r\n")
    peer = plane.waiting_gateway(outbound=False, expect_connect=True)
    session = peer.session
    assert isinstance(session, GatewaySession)
    peer.say(b'CONNECT {"a":1}\r\nINFO {"b":2}\r\nRMSG A foo 1\r\nx\r\nPING\r\n')
    assert [event[4] for event in plane.take(EV_CONNECT)] == [b'{"a":1}']
    session.accept_connect()
    plane.run()
    assert [event[4] for event in plane.take(EV_INFO)] == [b'{"b":2}']
    assert client.hear() == b""
    session.join(greeting=b"INFO {}\r\n", cluster=b"F", headers=True, traces=True, command=COMMAND)
    heard = peer.hear().splitlines()
    assert heard[0] == b"INFO {}"
    assert sorted(heard[1:]) == sorted(
        [
            b'INFO {"gateway":"G","gateway_cmd":2,"gateway_cmd_payload":"QQ=="}',
            b"RS+ A foo",
            b'INFO {"gateway":"G","gateway_cmd":3,"gateway_cmd_payload":"QQ=="}',
            b"PONG",
        ]
    )
    assert client.hear() == b"MSG foo 1 1\r\nx\r\n"
    assert peer.say(b'INFO {"c":3}\r\nPING\r\n') == b"PONG\r\n"
    assert [event[4] for event in plane.take(EV_INFO)] == [b'{"c":3}']


def test_another_verb_before_connect_is_a_violation(plane: DataPlane) -> None:
    peer = plane.waiting_gateway(outbound=False, expect_connect=True)
    assert peer.say(b"INFO {}\r\n") == b"-ERR 'Authorization Violation'\r\n"
    assert reasons(plane) == [ClosedState.AUTHENTICATION_VIOLATION]


INBOUND_LINES = [
    (b"RS+ A foo", True),
    (b"RS- A foo", True),
    (b"SUB A foo", True),
    (b"A+ A", True),
    (b"A- A", True),
    (b"LS+ O A foo", True),
    (b"LMSG A foo 0", True),
    (b"MSG foo 1", True),
    (b"-ERR 'No'", True),
    (b"RMSG A", True),
    (b"RMSG A foo x", True),
    (b"RMSG A foo 1 2 3 4", True),
    (b"+OK", False),
]
OUTBOUND_LINES = [
    (b"RMSG A foo 0\r\n", True),
    (b"HMSG A foo 12 12\r\nNATS/1.0\r\n\r\n", True),
    (b"RS+ A", True),
    (b"RS+ A w q", True),
    (b"RS+ A w q 1 1", True),
    (b"RS- A", True),
    (b"RS- A w q 1", True),
    (b"LS+ O A foo", True),
    (b"-ERR 'No'", True),
    (b"RS+ A foo..bar", False),
    (b"RS+ NOPE foo", False),
    (b"RS- NOPE foo", False),
    (b"RS- A nothing", False),
    (b"RS+ A foo g 999999999", False),
    (b"A+ A", False),
    (b"A- A", False),
    (b"+OK", False),
]


@pytest.mark.parametrize(
    ("outbound", "line", "closes"),
    [(False, *case) for case in INBOUND_LINES] + [(True, *case) for case in OUTBOUND_LINES],
    ids=lambda value: value[:24].decode() if isinstance(value, bytes) else "",
)
def test_lines_that_close(
    plane: DataPlane, account: Account, outbound: bool, line: bytes, closes: bool
) -> None:
    gateway = ready(plane.outbound() if outbound else plane.inbound())
    heard = gateway.say(line + b"\r\nPING\r\n")
    assert bool(plane.take(EV_CLOSED)) == closes
    assert heard.endswith(b"PONG\r\n") != closes
    assert heard.startswith(b"-ERR") == (line[:2] in (b"LS", b"LM", b"MS"))


@pytest.mark.parametrize(
    ("outbound", "line", "text"),
    [
        (False, b"RS+ A foo", "Received RS+ from gateway on inbound connection"),
        (False, b"RS- A foo", "Received RS- from gateway on inbound connection"),
        (False, b"A+ A", "Received A+ from gateway on inbound connection"),
        (False, b"A- A", "Received A- from gateway on inbound connection"),
        (True, b"RMSG A foo 0\r\n", "Received RMSG from gateway on outbound connection"),
        (True, b"RS+ A w q", "processGatewaySubjectSub Parse Error: 'A w q'"),
        (True, b"RS- A", "processGatewaySubjectUnsub parse error: 'A'"),
        (True, b"-ERR 'x'", "Gateway Error 'x'"),
    ],
)
def test_what_closes_is_logged(plane: DataPlane, outbound: bool, line: bytes, text: str) -> None:
    from gnats.connection.log_lines import describe

    gateway = ready(plane.outbound() if outbound else plane.inbound())
    gateway.say(line + b"\r\n")
    logged = [describe(*event[1:]) for event in plane.take(EV_LOG)]  # type: ignore[arg-type]
    assert logged == [("ERR", text)]


def test_rtt_is_reported_for_the_side_that_dialled(plane: DataPlane) -> None:
    outbound, inbound = plane.outbound(), plane.inbound()
    outbound.say(b"PONG\r\nPONG\r\n")
    inbound.say(b"PONG\r\n")
    assert [event[1] for event in plane.take(EV_PONG)] == [outbound.session] * 2


# -- the peer's interest -------------------------------------------------------------------------------------


def test_messages_go_where_there_is_interest(plane: DataPlane, account: Account, other: int) -> None:
    gateway, plain = plane.outbound(other), plane.outbound(cluster=b"H", headers=False)
    for one in gateway, plain:
        one.say(b"RS+ A foo\r\nRS+ A *\r\n")
    client = plane.client(account)
    client.say(b"PUB foo 2\r\nhi\r\nPUB foo r 2\r\nhi\r\nPUB no.body 1\r\nx\r\n")
    lines = b"RMSG A foo 2\r\nhi\r\nRMSG A foo r 2\r\nhi\r\n"
    assert (gateway.hear(), plain.hear()) == (lines, lines)
    gateway.say(b"RS- A foo\r\nRS- A *\r\n")
    client.say(b"PUB foo 2\r\nhi\r\n")
    assert (gateway.hear(), plain.hear()) == (b"", b"RMSG A foo 2\r\nhi\r\n")


def test_headers_are_for_peers_that_know_them(plane: DataPlane, account: Account, other: int) -> None:
    gateway, plain = plane.outbound(other), plane.outbound(cluster=b"H", headers=False)
    for one in gateway, plain:
        one.say(b"RS+ A foo\r\nRS+ A q g 1\r\n")
    source = plane.leaf(account, cluster=b"L1")
    source.say(b"HMSG foo r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert gateway.hear() == b"HMSG A foo r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    assert plain.hear() == b"RMSG A foo r 2\r\nhi\r\n"
    source.say(b"HMSG q | g 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert gateway.hear() == b"HMSG A q | g 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"


def test_interest_goes_with_the_connection(plane: DataPlane, account: Account, other: int) -> None:
    gateway = plane.outbound(other)
    gateway.say(b"".join(b"RS+ A foo.%d\r\nRS+ A q.%d g 1\r\n" % (n, n) for n in range(600)))
    gateway.say(b"".join(b"RS+ NONE foo.%d\r\n" % n for n in range(600)))
    assert account.sublist.count() == 1200
    gateway.socket.close()
    plane.run()
    assert account.sublist.count() == 0


def test_interest_in_an_account_that_comes_later(plane: DataPlane, other: int) -> None:
    gateway = plane.outbound(other)
    gateway.say(b"RS+ B foo\r\nRS+ B q g 1\r\nRS+ B gone\r\nRS+ B q2 g 1\r\nRS+ C foo\r\nRS+ B foo\r\n")
    gateway.say(b"RS- B gone\r\nRS- B q2 g\r\n")
    account = plane.account("B")
    plane.run()
    client = plane.client(account)
    client.say(b"PUB foo 1\r\n1\r\nPUB q 1\r\n2\r\nPUB gone 1\r\n3\r\nPUB q2 1\r\n4\r\n")
    assert gateway.hear() == b"RMSG B foo 1\r\n1\r\nRMSG B q | g 1\r\n2\r\n"
    gateway.say(b"RS- B foo\r\nRS- B q g\r\n")
    assert account.sublist.count() == 0


def test_interest_outlives_an_account_that_is_replaced(plane: DataPlane, other: int) -> None:
    gateway = plane.outbound(other)
    first = plane.account("B")
    gateway.say(b"RS+ B foo\r\nRS+ B q g 1\r\nRS+ B gone\r\n")
    plane.registry.remove(b"B")
    plane.run()
    assert first.sublist.count() == 0
    gateway.say(b"RS- B gone\r\n")
    second = plane.account("B")
    plane.run()
    assert second.sublist.count() == 2
    plane.registry.remove(b"B")
    third = plane.account("B")  # before the poller hears of the end of the second
    plane.run()
    assert (second.sublist.count(), third.sublist.count()) == (0, 2)
    gateway.say(b"RS- B foo\r\nRS- B q g\r\n")
    assert third.sublist.count() == 0


@pytest.mark.parametrize("count", [100, 4000])
def test_much_interest_outlives_an_account(plane: DataPlane, other: int, count: int) -> None:
    gateway = plane.outbound(other)
    account = plane.account("B")
    gateway.say(b"".join(b"RS+ B foo.%d\r\nRS+ C%d x\r\n" % (n, n) for n in range(count)))
    plane.registry.remove(b"B")
    plane.run()
    assert account.sublist.count() == 0
    plane.registry.add(b"B", account)
    others = [plane.account(f"C{n}") for n in range(0, count, 7)]
    plane.run()
    assert account.sublist.count() == count
    assert [other.sublist.count() for other in others] == [1] * len(others)


@pytest.mark.parametrize("outbound", [True, False])
def test_later_infos_hold_up_nothing(plane: DataPlane, other: int, outbound: bool) -> None:
    """A peer sends two for each of its accounts. Its PINGs must not wait until all of them are handled."""
    gateway = ready(plane.outbound(other) if outbound else plane.inbound(other))
    assert gateway.say(b"INFO {}\r\n" * 3 + b"PING\r\n") == b"PONG\r\n"
    assert len(plane.take(EV_INFO)) == 3


# -- queue groups --------------------------------------------------------------------------------------------


def test_the_nearest_cluster_gets_a_groups_message(plane: DataPlane, account: Account, other: int) -> None:
    near, far = plane.outbound(other, rank=1), plane.outbound(cluster=b"H", rank=2)
    client = plane.client(account)
    far.say(b"RS+ A x g 1\r\nRS+ A x\r\n")
    near.say(b"RS+ A x g 1\r\n")
    client.say(b"PUB x 1\r\n1\r\nPUB x r 1\r\n2\r\n")
    assert near.hear() == b"RMSG A x | g 1\r\n1\r\nRMSG A x + r g 1\r\n2\r\n"
    assert far.hear() == b"RMSG A x 1\r\n1\r\nRMSG A x r 1\r\n2\r\n"
    assert isinstance(far.session, GatewaySession)
    far.session.set_rank(0)
    client.say(b"PUB x 1\r\n3\r\n")
    assert (near.hear(), far.hear()) == (b"", b"RMSG A x | g 1\r\n3\r\n")
    far.socket.close()
    plane.run()
    client.say(b"PUB x 1\r\n4\r\n")
    assert near.hear() == b"RMSG A x | g 1\r\n4\r\n"


def test_each_group_looks_for_its_cluster(plane: DataPlane, account: Account, other: int) -> None:
    near, far = plane.outbound(other, rank=1), plane.outbound(cluster=b"H", rank=2)
    far.say(b"RS+ A x g 1\r\nRS+ A x h 1\r\nRS+ A * g 1\r\n")
    near.say(b"RS+ A x g 1\r\nRS+ A * g 1\r\n")
    plane.client(account).say(b"PUB x 1\r\n1\r\n")
    assert near.hear() == b"RMSG A x | g 1\r\n1\r\n"
    assert far.hear() == b"RMSG A x | h 1\r\n1\r\n"


def local_member(plane: DataPlane, account: Account, other: int) -> tuple[Peer, bytes]:
    return plane.client(account, other), b"SUB x g 1\r\n"


def routed_member(plane: DataPlane, account: Account, other: int) -> tuple[Peer, bytes]:
    return plane.route(other), b"RS+ A x g 2\r\n"


def leaf_member(plane: DataPlane, account: Account, other: int) -> tuple[Peer, bytes]:
    return plane.leaf(account, other, cluster=b"L1"), b"LS+ x g 2\r\n"


def routed_leaf_member(plane: DataPlane, account: Account, other: int) -> tuple[Peer, bytes]:
    return plane.route(other), b"LS+ O A x g 2\r\n"


@pytest.mark.parametrize("member", [local_member, routed_member, leaf_member, routed_leaf_member])
def test_a_group_with_a_member_in_the_cluster_crosses_no_gateway(
    plane: DataPlane,
    account: Account,
    other: int,
    member: Callable[[DataPlane, Account, int], tuple[Peer, bytes]],
) -> None:
    gateway, client = plane.outbound(other), plane.client(account)
    gateway.say(b"RS+ A x g 1\r\nRS+ A x h 1\r\n")
    peer, line = member(plane, account, other)
    ready(peer).say(line)
    client.say(b"PUB x 1\r\nx\r\n" * 50)
    assert peer.hear().count(b"\r\nx\r\n") == 50
    assert gateway.hear() == b"RMSG A x | h 1\r\nx\r\n" * 50
    peer.socket.close()
    plane.run()
    client.say(b"PUB x 1\r\nx\r\n")
    assert gateway.hear() in (b"RMSG A x | g h 1\r\nx\r\n", b"RMSG A x | h g 1\r\nx\r\n")


def test_a_leaf_nodes_message_goes_to_the_groups_that_it_names(
    plane: DataPlane, account: Account, other: int
) -> None:
    gateway, source = plane.outbound(other), plane.leaf(account, cluster=b"L1")
    gateway.say(b"RS+ A x g 1\r\nRS+ A x h 1\r\nRS+ A y\r\n")
    source.say(b"LMSG x 1\r\n1\r\nLMSG x | h 1\r\n2\r\nLMSG y 1\r\n3\r\n")
    assert gateway.hear() == b"RMSG A x | h 1\r\n2\r\nRMSG A y 1\r\n3\r\n"


# -- where messages go ---------------------------------------------------------------------------------------


def client_source(plane: DataPlane, account: Account, other: int) -> tuple[Peer, bytes]:
    return plane.client(account), b"PUB x 1\r\nx\r\n"


def route_source(plane: DataPlane, account: Account, other: int) -> tuple[Peer, bytes]:
    return plane.route(), b"RMSG A x 1\r\nx\r\n"


def leaf_source(plane: DataPlane, account: Account, other: int) -> tuple[Peer, bytes]:
    return plane.leaf(account, cluster=b"L7", loop_subject=b"$LDS.7"), b"LMSG x 1\r\nx\r\n"


def hub_source(plane: DataPlane, account: Account, other: int) -> tuple[Peer, bytes]:
    return plane.leaf(account, cluster=b"L8", spoke=True, loop_subject=b"$LDS.8"), b"LMSG x 1\r\nx\r\n"


def gateway_source(plane: DataPlane, account: Account, other: int) -> tuple[Peer, bytes]:
    return plane.inbound(cluster=b"K"), b"RMSG A x 1\r\nx\r\n"


@pytest.mark.parametrize(
    ("source", "reached"),
    [
        (client_source, {"client", "route", "leaf", "hub", "gateway"}),
        (route_source, {"client", "leaf"}),
        (leaf_source, {"client", "route", "leaf", "hub", "gateway"}),
        (hub_source, {"client", "leaf", "hub", "gateway"}),
        (gateway_source, {"client", "route", "leaf", "hub"}),
    ],
)
def test_where_messages_go_by_where_they_come_from(
    plane: DataPlane,
    account: Account,
    other: int,
    source: Callable[[DataPlane, Account, int], tuple[Peer, bytes]],
    reached: set[str],
) -> None:
    peers = {
        "client": plane.client(account, other),
        "route": plane.route(other),
        "leaf": plane.leaf(account, other, cluster=b"L1", loop_subject=b"$LDS.1"),
        "hub": plane.leaf(account, other, cluster=b"L2", spoke=True, loop_subject=b"$LDS.2"),
        "gateway": plane.outbound(other),
    }
    verbs = {
        "client": b"SUB x 1",
        "route": b"RS+ A x",
        "leaf": b"LS+ x",
        "hub": b"LS+ x",
        "gateway": b"RS+ A x",
    }
    for name, peer in peers.items():
        peer.say(verbs[name] + b"\r\n")
    publisher, message = source(plane, account, other)
    for peer in (*peers.values(), publisher):
        peer.hear()
    publisher.say(message)
    assert {name for name, peer in peers.items() if peer.hear().endswith(b"\r\nx\r\n")} == reached


def test_a_gateways_message_goes_to_the_groups_that_it_names(
    plane: DataPlane, account: Account, other: int
) -> None:
    source, client = plane.inbound(), plane.client(account, other)
    client.say(b"SUB x 1\r\nSUB x g 2\r\nSUB x h 3\r\n")
    for to, sids in (
        (b"", [b"1"]),
        (b"| g ", [b"1", b"2"]),
        (b"+ r h g ", [b"1", b"2", b"3"]),
        (b"| no ", [b"1"]),
    ):
        source.say(b"RMSG A x %b1\r\n1\r\n" % to)
        assert sorted(line.split()[2] for line in client.hear().splitlines()[::2]) == [
            b"%c" % sid for sid in sids
        ]
    source.say(b"HMSG A x | g 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert client.hear().count(b" 2\r\nhi\r\n") == 2


def test_a_gateways_message_is_shared_in_the_cluster_by_weight(
    plane: DataPlane, account: Account, other: int
) -> None:
    source, member, route = plane.inbound(), plane.client(account, other), plane.route(other)
    elsewhere, leaf = plane.outbound(cluster=b"H"), plane.leaf(account, cluster=b"L1")
    member.say(b"SUB x g 1\r\n")
    route.say(b"RS+ A x g 3\r\n")
    leaf.say(b"LS+ x g 9\r\n")
    elsewhere.say(b"RS+ A x g 1\r\n")
    for peer in member, route, leaf, source:
        peer.hear()
    source.say(b"RMSG A x | g 1\r\nx\r\n" * 400)
    heard = route.hear()
    there, here = heard.count(b"RMSG A x | g 1\r\n"), member.hear().count(b"MSG")
    assert there + here == 400
    assert 230 < there < 370
    member.socket.close()
    route.socket.close()
    plane.run()
    source.say(b"RMSG A x | g 1\r\nx\r\n")
    assert leaf.hear().endswith(b"LMSG x | g 1\r\nx\r\n")
    leaf.socket.close()
    plane.run()
    source.say(b"RMSG A x | g 1\r\nx\r\n")
    assert elsewhere.hear() == b""


def test_members_in_other_clusters_are_not_drawn(plane: DataPlane, account: Account, other: int) -> None:
    members = [plane.client(account, other) for _ in range(2)]
    gateways = [plane.outbound(other, cluster=b"F%d" % n, rank=n) for n in range(3)]
    source = plane.route()
    for peer in gateways:
        peer.say(b"RS+ A x g 1\r\n")
    for peer in members:
        peer.say(b"SUB x g 1\r\n")
    ready(source).say(b"RMSG A x | g 1\r\nx\r\n" * 200)
    plane.client(account).say(b"PUB x 1\r\nx\r\n" * 200)
    assert [peer.hear() for peer in gateways] == [b""] * 3
    counts = [member.hear().count(b"MSG") for member in members]
    assert sum(counts) == 400
    assert min(counts) > 100
    for member in members:
        member.socket.close()
    plane.run()
    source.say(b"RMSG A x | g 1\r\nx\r\n")
    assert [peer.hear() for peer in gateways] == [b""] * 3


def test_a_peer_hears_once_of_an_account_that_is_not_there(plane: DataPlane, other: int) -> None:
    source = plane.inbound(other)
    long = b"N" * 600
    assert source.say(b"RMSG NONE x 1\r\nx\r\nRMSG NONE y 1\r\ny\r\n") == b"A- NONE\r\n"
    assert source.say(b"RMSG %b x 1\r\nx\r\nRMSG NONE x 1\r\nx\r\n" % long) == b"A- %b\r\n" % long
    plane.account("NONE")
    assert told(source) == [(START, "NONE"), (COMPLETE, "NONE")]
    assert source.say(b"RMSG NONE x 1\r\nx\r\n") == b""
    plane.registry.remove(b"NONE")
    assert source.say(b"RMSG NONE x 1\r\nx\r\n" * 2) == b"A- NONE\r\n"
    assert source.say(b"".join(b"RMSG N%d x 0\r\n\r\n" % n for n in range(1000))).count(b"A- N") == 1000


def test_messages_before_the_peer_is_registered_are_delivered(plane: DataPlane, account: Account) -> None:
    client = plane.client(account)
    client.say(b"SUB x 1\r\n")
    source = plane.waiting_gateway(outbound=False)
    source.say(b"RMSG A x 1\r\nx\r\n")
    assert client.hear() == b"MSG x 1 1\r\nx\r\n"


def test_streams_show_the_subject_behind_the_at_sign(plane: DataPlane, account: Account, other: int) -> None:
    client = plane.client(account, other)
    client.say(b"SUB deliver 1\r\n")
    source = plane.inbound()
    ack = b"$JS.ACK.S@1.C.1.2.3.4.5"
    source.say(b"RMSG A deliver %b@stored.a 1\r\nx\r\n" % ack)
    assert client.hear() == b"MSG stored.a 1 %b 1\r\nx\r\n" % ack


def test_a_request_over_a_gateway_is_not_imported_again(
    plane: DataPlane, account: Account, other: int
) -> None:
    exporter = plane.account("S")
    imported = ImportedService(
        account, ExportedService(exporter, "singleton", 60.0), b"from", b"to", None,
        use_published=False, share=False, to_system=False, sid=b"1",
    )  # fmt: skip
    server = plane.client(exporter, other)
    server.say(b"SUB to 1\r\n")
    plane.inbound().say(b"RMSG A from r 1\r\nx\r\n")
    assert server.hear() == b""
    plane.client(account).say(b"PUB from r 1\r\nx\r\n")
    assert server.hear().startswith(b"MSG to 1 _R_.")
    imported.close()


def test_an_imported_service_is_asked_for_in_another_cluster(
    plane: DataPlane, account: Account, other: int
) -> None:
    exporter = plane.account("S")
    imported = ImportedService(
        account, ExportedService(exporter, "singleton", 60.0), b"from", b"to", None,
        use_published=False, share=False, to_system=False, sid=b"1",
    )  # fmt: skip
    gateway = plane.outbound(other)
    gateway.say(b"RS+ S to\r\n")
    plane.client(account).say(b"PUB from r 1\r\nx\r\n")
    assert gateway.hear().startswith(b"HMSG S to _R_.")
    imported.close()


def test_traces_name_each_clusters_hop(plane: DataPlane, account: Account, other: int) -> None:
    near, far = plane.outbound(other, rank=1), plane.outbound(cluster=b"H", rank=2)
    route = plane.route(other)
    for peer in far, near, route:
        peer.say(b"RS+ A x\r\n")
    header = b"NATS/1.0\r\nNats-Trace-Dest: t\r\n\r\n"
    source = plane.leaf(account, cluster=b"L1")
    source.say(b"HMSG x %d %d\r\n%bx\r\n" % (len(header), len(header) + 1, header))
    hops = [peer.hear().partition(b"Nats-Trace-Hop: ")[2][:1] for peer in (route, near, far)]
    assert hops == [b"1", b"2", b"3"]
