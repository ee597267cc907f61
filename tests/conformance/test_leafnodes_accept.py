"""A server that accepts leaf nodes: its INFO, whom it refuses and why, what it answers, logs and shows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.launch import Launch
from support.leafpeer import FakeLeaf, LeafPeer, interest, launch_accepting, leaf_address, loop_subject
from support.monitor import monitor
from support.servers import REFERENCE, Server, until
from support.wire import Closed, Connection

from .cases import params
from .differences import INFO_EXTRA, INFO_MISSING

pytestmark = pytest.mark.timeout(60)

VOLATILE = {"server_id", "port", "nonce", "ip", "leafnode_urls", "client_id"}
VIOLATION = b"-ERR 'Authorization Violation'\r\n"
CREATED = "INF Leafnode connection created "
DOMAINS = 'INF JetStream using domains: local "", remote ""'
SPACES = "cluster name cannot contain spaces"
RESERVED = "cluster name is reserved"
SAME_CLUSTER = "remote leafnode has same cluster name"
WRONG_PORT = "attempted to connect to leaf node port"
USERS = """
accounts {
    A { users [ { user: a, password: p, permissions {
            publish { allow: ["x.>", q], deny: x.no }, subscribe { allow: ["s.>", "t q"], deny: s.no } } } ]
        mappings { "m.*": "n.$1" } }
    B { users [ { user: b, password: p } ], imports [ { service { account: D, subject: srv } } ] }
    D { exports [ { service: srv } ] }
    L { users [ { user: l, password: p } ], limits { max_leafnodes: 1 } }
    $SYS { users [ { user: s, password: p } ] }
}
"""
PASSWORD = {"pass": "p"}
SERVICES = [
    b"LS+ $SYS.REQ.ACCOUNT.PING.CONNZ",
    b"LS+ $SYS.REQ.ACCOUNT.PING.STATZ",
    b"LS+ $SYS.REQ.SERVER.PING.CONNZ",
    b"LS+ $SYS.REQ.USER.INFO",
]


@pytest.fixture(scope="module")
def server(launch_shared: Launch) -> Server:
    return launch_accepting(launch_shared, "-D", config="server_name: S")


@pytest.fixture(scope="module")
def guarded(launch_shared: Launch) -> Server:
    config = f"server_name: S\ncluster {{ name: C, listen: '127.0.0.1:-1' }}\n{USERS}"
    return launch_accepting(launch_shared, "-D", block="min_version: 2.10.0", config=config)


@pytest.fixture
def fake() -> Iterator[FakeLeaf]:
    with FakeLeaf() as fake:
        yield fake


SETTINGS = {
    "defaults": ("", ""),
    "advertise": ("advertise: '1.2.3.4:99'", ""),
    "cluster": ("", "cluster { name: C, listen: '127.0.0.1:-1' }"),
    "maximum payload": ("", "max_payload: 1000"),
    "no headers": ("", "no_header_support: true"),
    "compression accepted": ("compression: accept", ""),
    "compression by RTT": ("compression: s2_auto", ""),
}


def members(op: bytes) -> list[tuple[str, Any]]:
    """Return the members of an INFO in order, without those that may differ; volatile ones as None."""
    found = json.loads(op[5:], object_pairs_hook=list)
    leave = INFO_MISSING.keys() | INFO_EXTRA.keys()
    return [(name, None if name in VOLATILE else value) for name, value in found if name not in leave]


@pytest.mark.parametrize(("block", "config"), SETTINGS.values(), ids=SETTINGS)
def test_info_has_the_fields_of_the_reference_in_their_order(
    launch: Launch, fake: FakeLeaf, block: str, config: str
) -> None:
    config = "server_name: S\n" + config
    tested = fake.greet(launch_accepting(launch, block=block, config=config))
    expected = fake.greet(launch_accepting(launch, block=block, config=config, kind=REFERENCE))
    assert members(tested.seen[0]) == members(expected.seen[0])


def test_info_names_the_port(server: Server, fake: FakeLeaf) -> None:
    peer = fake.greet(server)
    host, port = leaf_address(server)
    assert re.fullmatch(rb"INFO \{[^\r\n]*\} \r\n", peer.seen[0])
    assert (peer.info["host"], peer.info["port"]) == (host, port)
    assert peer.info["ip"] == f"{host}:{port}"
    assert peer.info["leafnode_urls"] == [f"{host}:{port}"]
    assert peer.info["nonce"] != fake.greet(server).info["nonce"]
    assert peer.info["client_id"] > 0


def test_the_answer_to_connect(server: Server, fake: FakeLeaf) -> None:
    peer = fake.dial(server)
    found = [name for name, _ in members(peer.seen[1])]
    assert found == [
        *("server_id", "server_name", "version", "proto", "host", "port", "headers", "auth_required"),
        *("max_payload", "ip", "client_id", "connect_info", "remote_account", "api_lvl", "info_on_connect"),
        "leafnode_urls",
    ]
    assert peer.connected["remote_account"] == "$G"
    assert peer.connected["client_id"] == peer.info["client_id"]
    assert interest(peer.opening) == SERVICES
    assert re.fullmatch(rb"\$LDS\.\w{22}", loop_subject(peer.opening))
    peer.wait_logged(server, DOMAINS)


def test_the_loop_subject_is_the_accounts(guarded: Server) -> None:
    with FakeLeaf() as first, FakeLeaf() as second, FakeLeaf() as third:
        subjects = [
            loop_subject(fake.dial(guarded, user=user, **PASSWORD).opening)
            for fake, user in ((first, "b"), (second, "b"), (third, "a"))
        ]
    assert subjects[0] == subjects[1] != subjects[2]


def test_the_account_of_a_user(guarded: Server, fake: FakeLeaf) -> None:
    peer = fake.dial(guarded, user="b", **PASSWORD)
    assert peer.connected["remote_account"] == "B"
    assert "acc_is_sys" not in peer.connected
    assert interest(peer.opening) == [*SERVICES, b"LS+ srv"]


def test_the_system_account(guarded: Server, fake: FakeLeaf) -> None:
    peer = fake.dial(guarded, user="s", **PASSWORD)
    assert (peer.connected["remote_account"], peer.connected["acc_is_sys"]) == ("$SYS", True)
    assert b"LS+ $SYS.REQ.SERVER.PING.LEAFZ" in interest(peer.opening)
    peer.wait_logged(guarded, f"INF System account connected from {fake.name}")
    peer.wait_logged(guarded, "INF JetStream not extended, domains differ")


def test_the_permissions_of_a_user(guarded: Server, fake: FakeLeaf) -> None:
    """They are those of the peer: what it may receive and send, and what it is told of."""
    peer = fake.dial(guarded, user="a", **PASSWORD)
    assert peer.connected["import"] == {"allow": ["s.>", "t q"], "deny": ["s.no"]}
    assert peer.connected["export"] == {"allow": ["x.>", "q"], "deny": ["x.no"]}
    assert b"LS+ m.*" in interest(peer.opening)
    assert loop_subject(peer.opening)


def test_a_peer_that_is_the_hub(guarded: Server, fake: FakeLeaf) -> None:
    peer = fake.dial(guarded, user="a", is_hub=True, **PASSWORD)
    assert interest(peer.opening) == []
    assert peer.subscribe(b"zz") == []  # it knows no permissions
    peer = fake.dial(guarded, user="b", is_hub=True, **PASSWORD)
    assert interest(peer.opening) == [*SERVICES, b"LS+ srv"]
    assert leafs(guarded, peer)["is_spoke"] is True


DENIED: dict[str, tuple[bytes, str, str]] = {
    "interest": (
        b"LS+ other\r\n",
        'Permissions Violation for Subscription to "other"',
        'ERR Subscription Violation on "other" - Check other side configuration',
    ),
    "interest that it may send": (
        b"LS+ s.ok\r\nLS+ x.y\r\n",
        'Permissions Violation for Subscription to "x.y"',
        'ERR Subscription Violation on "x.y" - Check other side configuration',
    ),
    "message": (
        b"LMSG zz 0\r\n\r\n",
        'Permissions Violation for Publish to "zz"',
        'ERR Publish Violation on "zz" - Check other side configuration',
    ),
    "denied message": (
        b"LMSG x.no 0\r\n\r\n",
        'Permissions Violation for Publish to "x.no"',
        'ERR Publish Violation on "x.no" - Check other side configuration',
    ),
}


@pytest.mark.parametrize(("sent", "error", "line"), params(DENIED))
def test_a_violation_closes(guarded: Server, fake: FakeLeaf, sent: bytes, error: str, line: str) -> None:
    peer = fake.dial(guarded, user="a", **PASSWORD)
    peer.send(sent)
    assert peer.rest()[-1] == f"-ERR '{error}'\r\n".encode()
    peer.wait_logged(guarded, line)
    peer.wait_logged(guarded, closed("Protocol Violation", fake.name))


def closed(reason: str, name: str = "") -> str:
    remote = f" - Remote: {name}" if name else ""
    return f"INF Leafnode connection closed: {reason}{remote}"


UNAUTHENTICATED = VIOLATION, [CREATED, "ERR authentication error", closed("Authentication Failure")]
NO_JSON = b"", [CREATED, "ERR unexpected end of JSON input", closed("Protocol Violation")]
GATEWAY = 'Rejecting connection from gateway "G" on the leafnode port'

Send = Callable[[FakeLeaf], bytes]
REFUSED: dict[str, tuple[Send, tuple[bytes, list[str]]]] = {
    "INFO before CONNECT": (lambda fake: fake.info(), UNAUTHENTICATED),
    "PING before CONNECT": (lambda fake: b"PING\r\n", UNAUTHENTICATED),
    "SUB before CONNECT": (lambda fake: b"SUB foo 1\r\n", UNAUTHENTICATED),
    "LS+ before CONNECT": (lambda fake: b"LS+ foo\r\n", UNAUTHENTICATED),
    "LMSG before CONNECT": (lambda fake: b"LMSG foo 0\r\n\r\n", UNAUTHENTICATED),
    "no JSON in CONNECT": (lambda fake: b"CONNECT\r\n", NO_JSON),
    "half a CONNECT": (lambda fake: b"CONNECT {\r\n", NO_JSON),
    "an account": (lambda fake: fake.connect(account="X"), UNAUTHENTICATED),
    "client": (
        lambda fake: fake.connect(lang="go"),
        (
            f"-ERR '{WRONG_PORT}'\r\n".encode(),
            [CREATED, f"ERR {WRONG_PORT} - Account:$G", closed("Incorrect Port"), f"ERR {WRONG_PORT}"],
        ),
    ),
    "gateway": (
        lambda fake: fake.connect(gateway="G"),
        (
            f"-ERR '{GATEWAY}'\r\n".encode(),
            [CREATED, f"ERR {GATEWAY}", closed("Wrong Gateway"), "ERR wrong gateway"],
        ),
    ),
    "blanks in the cluster's name": (
        lambda fake: fake.connect(cluster="a b"),
        (
            f"-ERR '{SPACES}'\r\n".encode(),
            [CREATED, f"ERR {SPACES} - Account:$G", closed("Protocol Violation"), f"ERR {SPACES}"],
        ),
    ),
    "the name of no cluster": (
        lambda fake: fake.connect(cluster="_"),
        (
            f"-ERR '{RESERVED}'\r\n".encode(),
            [CREATED, f"ERR {RESERVED} - Account:$G", closed("Protocol Violation"), f"ERR {RESERVED}"],
        ),
    ),
}


@pytest.mark.parametrize(("send", "refusal"), params(REFUSED))
def test_refused(server: Server, fake: FakeLeaf, send: Send, refusal: tuple[bytes, list[str]]) -> None:
    peer = fake.greet(server)
    peer.send(send(fake))
    answer, log = refusal
    assert b"".join(peer.rest()) == answer
    assert logged(server, peer, log) == log


def logged(server: Server, peer: LeafPeer, lines: list[str]) -> list[str]:
    """Wait for each of the lines, and return those logged, the expected ones in the order expected."""
    for line in lines:
        peer.wait_logged(server, line)
    found = peer.logged(server)
    return lines if sorted(found) == sorted(lines) else found


def test_the_same_cluster(guarded: Server, fake: FakeLeaf) -> None:
    peer = fake.greet(guarded)
    peer.send(fake.connect(user="b", cluster="C", **PASSWORD))
    assert peer.rest() == [f"-ERR '{SAME_CLUSTER}'\r\n".encode()]
    log = [
        *(CREATED, f"ERR {SAME_CLUSTER} - Account:B - user:b", closed("Cluster Names Identical")),
        f"ERR {SAME_CLUSTER}",
    ]
    assert logged(guarded, peer, log) == log


@pytest.mark.parametrize("version", ["2.9.25", None, "x"])
def test_too_old(launch: Launch, fake: FakeLeaf, version: str | None) -> None:
    server = launch_accepting(launch, "-D", block="min_version: 2.10.0")
    peer = fake.greet(server)
    peer.send(fake.connect(version=version))
    error = 'connection rejected since minimum version required is "2.10.0"'
    info, text = peer.rest()
    assert json.loads(info[5:])["connect_info"] is True
    assert text == f"-ERR '{error}'\r\n".encode()
    log = [CREATED, f"ERR {error} - Account:$G", closed("Minimum Version Required")]
    assert logged(server, peer, log) == log


@pytest.mark.parametrize("version", ["2.10.0", "2.15.1", "3.0.0-rc.1"])
def test_new_enough(guarded: Server, fake: FakeLeaf, version: str) -> None:
    assert fake.dial(guarded, user="b", version=version, **PASSWORD).connected["remote_account"] == "B"


LOGINS: dict[str, tuple[dict[str, Any], str]] = {
    "wrong password": ({"user": "b", "pass": "no"}, ' - User "b"'),
    "wrong user": ({"user": "no", "pass": "p"}, ' - User "no"'),
    "nothing": ({}, ""),
}


@pytest.mark.parametrize(("login", "named"), params(LOGINS))
@pytest.mark.parametrize(
    "block",
    [
        "authorization { user: b, password: p }",
        "authorization { users [ { user: b, password: p, account: A }, { user: c, password: p } ] }",
        "",
    ],
    ids=["user", "users", "clients"],
)
def test_wrong_login(launch: Launch, fake: FakeLeaf, block: str, login: dict[str, Any], named: str) -> None:
    server = launch_accepting(launch, "-D", block=block, config=USERS)
    peer = fake.greet(server)
    peer.send(fake.connect(**login))
    assert peer.rest() == [VIOLATION]
    log = [CREATED, f"ERR authentication error{named}", closed("Authentication Failure")]
    assert logged(server, peer, log) == log


RIGHT = {
    "user": ("authorization { user: u, password: p, account: A }", "u", "A"),
    "user without an account": ("authorization { user: u, password: p }", "u", "$G"),
    "users": ("authorization { users [ { user: u, password: p, account: A } ] }", "u", "A"),
    "users, no account": ("authorization { users [ { user: u, password: p } ] }", "u", "$G"),
    "clients": ("", "b", "B"),
}


@pytest.mark.parametrize(("block", "user", "account"), params({k: v for k, v in RIGHT.items() if v[2]}))
def test_right_login(launch: Launch, fake: FakeLeaf, block: str, user: str, account: str) -> None:
    server = launch_accepting(launch, block=block, config=USERS)
    assert fake.dial(server, user=user, **PASSWORD).connected["remote_account"] == account


def test_the_default_account(launch: Launch, fake: FakeLeaf) -> None:
    server = launch_accepting(launch, block="authorization { account: A }", config="accounts { A {} }")
    assert fake.dial(server).connected["remote_account"] == "A"


def test_silence(launch: Launch, fake: FakeLeaf) -> None:
    server = launch_accepting(launch, "-D", block="authorization { timeout: 0.2 }")
    peer = fake.greet(server)
    assert peer.rest() == [b"-ERR 'Authentication Timeout'\r\n"]
    log = [CREATED, "DBG Authentication Timeout", closed("Authentication Timeout")]
    assert logged(server, peer, log) == log


def leafs(server: Server, peer: LeafPeer) -> dict[str, Any]:
    """Return the entry of a peer on /leafz."""
    port = peer.sock.getsockname()[1]
    found: list[dict[str, Any]] = monitor(server, "/leafz?subs=1")["leafs"]
    return next(each for each in found if each["port"] == port)


def test_leafz(guarded: Server, fake: FakeLeaf) -> None:
    peer = fake.dial(guarded, user="b", cluster="D", **PASSWORD)
    peer.subscribe(b"foo", b"bar q 1")
    info = leafs(guarded, peer)
    assert info.pop("rtt")
    assert sorted(info.pop("subscriptions_list")) == ["bar", "foo"]
    assert info == {
        "id": peer.info["client_id"],
        "name": fake.name,
        "is_spoke": False,
        "account": "B",
        "ip": "127.0.0.1",
        "port": peer.sock.getsockname()[1],
        "in_msgs": 0,
        "out_msgs": 0,
        "in_bytes": 0,
        "out_bytes": 0,
        "subscriptions": 2,
        "compression": "not supported",
    }
    assert monitor(guarded, "/leafz?acc=A")["leafs"] == []
    assert monitor(guarded, "/accountz?acc=B")["account_detail"]["leafnode_connections"] >= 1


def test_the_count_of_leaf_nodes(launch: Launch, fake: FakeLeaf) -> None:
    server = launch_accepting(launch)
    with FakeLeaf() as other:
        fake.dial(server), other.dial(server)
        assert monitor(server, "/varz")["leafnodes"] == 2
        assert monitor(server, "/leafz")["leafnodes"] == 2
    until(lambda: monitor(server, "/varz")["leafnodes"] == 1)


def test_the_same_server_again_replaces_its_connection(server: Server, fake: FakeLeaf) -> None:
    first = fake.dial(server)
    second = fake.dial(server)
    assert first.rest()[-1] == b"-ERR 'Duplicate Remote LeafNode Connection'\r\n"
    reason = "Duplicate Remote LeafNode Connection"
    first.wait_logged(server, f"ERR {reason} - Account:$G")
    first.wait_logged(server, closed(reason, fake.name))
    second.wait_logged(server, "WRN Replacing connection from same server")
    assert second.fence() == []


def test_a_second_connect_closes(server: Server, fake: FakeLeaf) -> None:
    peer = fake.dial(server)
    peer.send(fake.connect())
    assert peer.rest()[-1] == b"-ERR 'Duplicate Remote LeafNode Connection'\r\n"
    peer.wait_logged(server, closed("Duplicate Remote LeafNode Connection", fake.name))


def test_another_account_of_the_same_server_does_not(server: Server, fake: FakeLeaf) -> None:
    first, second = fake.dial(server), fake.dial(server, remote_account="X")
    assert first.fence() == second.fence() == []


@pytest.mark.parametrize(
    "verb",
    [b"PING", b"PONG", b"-ERR 'x'", b"+OK", b"LS+ x", b"LMSG x 0\r\n"],
    ids=lambda verb: verb[:4].decode(),
)
@pytest.mark.parametrize("informed", [False, True])
def test_only_info_may_come_before_connect(
    launch: Launch, fake: FakeLeaf, verb: bytes, informed: bool
) -> None:
    server = launch_accepting(launch, block="compression: accept")
    peer = fake.greet(server)
    peer.send((fake.info(compression="off") if informed else b"") + verb + b"\r\n")
    assert peer.rest()[-1] == VIOLATION
    assert "Leafnode Error" not in server.log


@pytest.mark.parametrize("user", ["a", "b"])
def test_a_second_connect(guarded: Server, fake: FakeLeaf, user: str) -> None:
    peer = fake.dial(guarded, user="b", **PASSWORD)
    peer.send(fake.connect(user=user, **PASSWORD))
    assert peer.rest()[-1] == b"-ERR 'Duplicate Remote LeafNode Connection'\r\n"
    peer.wait_logged(guarded, closed("Duplicate Remote LeafNode Connection", fake.name))


def test_a_loop(server: Server, fake: FakeLeaf) -> None:
    peer = fake.dial(server)
    peer.send(b"LS+ " + loop_subject(peer.opening) + b"\r\n")
    error = 'Loop detected for leafnode account="$G". Delaying attempt to reconnect for 30s'
    assert peer.rest()[-1] == f"-ERR '{error}'\r\n".encode()
    peer.wait_logged(server, f"ERR {error}")
    peer.wait_logged(server, closed("Protocol Violation", fake.name))


def test_no_more_than_max_leafnodes(guarded: Server, fake: FakeLeaf) -> None:
    fake.dial(guarded, user="l", **PASSWORD)
    with FakeLeaf() as other, pytest.raises(Closed) as ended:
        other.dial(guarded, user="l", **PASSWORD)
    assert b"-ERR 'maximum account active connections exceeded'\r\n" in ended.value.args[0]


def test_an_error_of_the_peer_does_not_close(server: Server, fake: FakeLeaf) -> None:
    peer = fake.dial(server)
    peer.send(b"-ERR 'it went wrong'\r\n")
    assert peer.fence() == []
    peer.wait_logged(server, "ERR Leafnode Error 'it went wrong'")


def test_the_peer_leaves(server: Server, fake: FakeLeaf) -> None:
    peer = fake.dial(server)
    peer.close()
    peer.wait_logged(server, closed("Client Closed", fake.name))


def test_the_server_leaves(launch: Launch, fake: FakeLeaf) -> None:
    server = launch_accepting(launch)
    peer = fake.dial(server)
    server.stop()
    peer.rest()


def test_interest_of_clients_comes_and_goes(server: Server, fake: FakeLeaf) -> None:
    peer = fake.dial(server)
    with Connection(server.address) as client:
        client.send(b"CONNECT {}\r\nSUB foo 1\r\nSUB bar q 2\r\n")
        assert interest(peer.after_client(client)) == [b"LS+ bar q 1", b"LS+ foo"]
        client.send(b"UNSUB 1\r\n")
        assert interest(peer.after_client(client)) == [b"LS- foo"]


def test_a_kick(guarded: Server, fake: FakeLeaf) -> None:
    peer = fake.dial(guarded, user="b", **PASSWORD)
    server_id = peer.info["server_id"]
    with Connection(guarded.address) as client:
        client.send(b'CONNECT {"user":"s","pass":"p","verbose":false}\r\n')
        body = json.dumps({"cid": peer.info["client_id"]}).encode()
        client.send(b"PUB $SYS.REQ.SERVER.%b.KICK x %d\r\n%b\r\n" % (server_id.encode(), len(body), body))
        client.fence()
        peer.rest()
    peer.wait_logged(guarded, closed("Kicked", fake.name))


def test_compression_is_agreed_on(launch: Launch, fake: FakeLeaf) -> None:
    server = launch_accepting(launch, block="compression: s2_fast", config="server_name: S")
    peer = fake.greet(server)
    assert peer.info["compression"] == "s2_fast"
    peer.send(fake.info(compression="s2_fast"))
    peer.compress()
    second = peer.take_info()
    assert (second["compression"], second["client_id"]) == ("s2_fast", peer.info["client_id"])
    assert second["nonce"] == json.loads(peer.seen[0][5:])["nonce"]
    peer.send(fake.connect(compress_mode="s2_fast"))
    assert peer.take_connected()["remote_account"] == "$G"
    assert interest(peer.fence()) == SERVICES
    assert leafs(server, peer)["compression"] == "s2_fast"


@pytest.mark.parametrize("theirs", ["off", "not supported", None])
def test_a_peer_without_compression(launch: Launch, fake: FakeLeaf, theirs: str | None) -> None:
    server = launch_accepting(launch, block="compression: s2_fast")
    peer = fake.greet(server)
    peer.send(fake.info(compression=theirs) + fake.connect(compress_mode=theirs or "not supported"))
    assert peer.take_connected()["remote_account"] == "$G"
    peer.fence()
    assert leafs(server, peer)["compression"] == (theirs or "not supported")


def test_an_unknown_compression(launch: Launch, fake: FakeLeaf) -> None:
    server = launch_accepting(launch, "-D", block="compression: s2_fast")
    peer = fake.greet(server)
    peer.send(fake.info(compression="x"))
    error = 'unsupported route compression mode "x"'
    assert peer.rest() == [f"-ERR '{error}'\r\n".encode()]
    log = [CREATED, f"ERR {error}", closed("Protocol Violation")]
    assert logged(server, peer, log) == log


def test_silence_where_compression_may_be_agreed_on(launch: Launch, fake: FakeLeaf) -> None:
    server = launch_accepting(launch, block="compression: s2_fast\nauthorization { timeout: 0.2 }")
    assert fake.greet(server).rest() == [b"-ERR 'Authentication Timeout'\r\n"]


def test_connz_lists_leaf_nodes_with_clients(launch: Launch, fake: FakeLeaf) -> None:
    server = launch_accepting(launch)
    peer = fake.dial(server)
    (found,) = monitor(server, "/connz")["connections"]
    assert (found["kind"], found["name"], found["cid"]) == ("Leafnode", fake.name, peer.info["client_id"])
    assert "type" not in found
    peer.close()
    until(lambda: monitor(server, "/connz?state=closed")["total"] == 1)
    (found,) = monitor(server, "/connz?state=closed")["connections"]
    assert (found["kind"], found["name"]) == ("Leafnode", fake.name)


def test_connz_lists_what_a_closed_leaf_node_had_subscribed_to(launch: Launch, fake: FakeLeaf) -> None:
    server = launch_accepting(launch)
    peer = fake.dial(server)
    peer.send(b"LS+ plain\r\nLS+ of.group g 2\r\n")
    peer.fence()
    peer.close()
    until(lambda: monitor(server, "/connz?state=closed")["total"] == 1)
    for details in "1", "detail":
        (found,) = monitor(server, f"/connz?state=all&subs={details}")["connections"]
        rows = found["subscriptions_list" if details == "1" else "subscriptions_list_detail"]
        subjects = [row if details == "1" else (row["subject"], row.get("qgroup", "")) for row in rows]
        wanted = ["of.group", "plain"] if details == "1" else [("of.group", "g"), ("plain", "")]
        assert sorted(subjects) == wanted


@pytest.mark.parametrize(
    "name", ["a\tb", "q\tA\tfoo\r\nRMSG\tV\tx\t0\r\n\r\nLS+\tq", "a\x00b", "a\x7f", "n" * 256]
)
def test_a_cluster_whose_name_would_break_lines_of_routes(launch: Launch, fake: FakeLeaf, name: str) -> None:
    server = launch_accepting(launch, "-D")
    if server.kind.is_reference:
        pytest.skip("the reference writes such a name into its lines to other servers")
    peer = fake.greet(server)
    peer.send(fake.connect(cluster=name))
    (error,) = peer.rest()
    assert error.startswith(b"-ERR 'cluster name cannot ")


def test_a_server_name_that_is_no_line_of_a_log(launch: Launch, fake: FakeLeaf) -> None:
    server = launch_accepting(launch, "-D")
    if server.kind.is_reference:
        pytest.skip("the reference logs it as it is")
    peer = fake.greet(server)
    peer.send(fake.connect(name="x\r\n[1] FORGED") + b"PING\r\n")
    peer.take_connected()
    peer.close()
    server.wait_log(r'Leafnode connection closed: .* - Remote: "x\\r\\n\[1\] FORGED"')
    assert "\n[1] FORGED" not in server.log


def test_errors_of_a_peer_are_logged_within_bounds(launch: Launch, fake: FakeLeaf) -> None:
    server = launch_accepting(launch)
    if server.kind.is_reference:
        pytest.skip("the reference logs them all")
    peer = fake.dial(server)
    for _ in range(20):
        peer.send(b"-ERR '%b'\r\n" % (b"x" * 50_000) * 20)
        peer.fence()
    assert "Leafnode Error" in server.log
    assert len(server.log) < 400 * 5000
