"""A server with a gateway: its INFO and CONNECT, what it refuses and why, interest, mapped replies.

The facts behind these tests are in docs/gateways.md.

Intended differences, not tested against the reference, whose process ends with a Go panic: A+ and A- on a
connection that the peer has dialled, and RMSG on one that the server has dialled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.gatewaypeer import (
    ALL_SUBS_COMPLETE,
    ALL_SUBS_START,
    GOSSIP,
    REPLY,
    FakeGateway,
    GatewayListener,
    GatewayPeer,
    commands,
    gateway_address,
    interest,
    launch_gateway,
    messages,
    name_hash,
)
from support.launch import Launch
from support.monitor import monitor
from support.routepeer import encode
from support.servers import Kind, Server, until
from support.wire import Connection, connect_op, publish_op

from .cases import params

pytestmark = pytest.mark.timeout(60)

ACCOUNTS = """
server_name: S
accounts {
    A { users [ { user: a, password: p } ], exports [ { service: srv } ] }
    B { users [ { user: b, password: p } ], imports [ { service { account: A, subject: srv }, to: bsrv } ] }
    SYS { users [ { user: s, password: p } ] }
}
system_account: SYS
"""
ACCOUNT_COUNT = 4
"""Accounts of a server with ACCOUNTS: these three, and $G."""
VIOLATION = b"-ERR 'Authorization Violation'\r\n"
PASSWORD = {"user": "u", "pass": "p"}
INFO_MEMBERS = [
    *("server_id", "server_name", "version", "proto", "go", "host", "port", "headers", "max_payload"),
    *("gateway", "gateway_urls", "gateway_url", "gateway_nrp", "gateway_iom"),
]
CONNECT_MEMBERS = [
    *("echo", "verbose", "pedantic", "tls_required", "headers", "name", "cluster", "gateway"),
]


def user(server: Server, name: str, **options: object) -> Connection:
    client = Connection(server.address)
    client.send(connect_op(name, "p", **options))
    client.fence()
    return client


@pytest.fixture(scope="module")
def server(launch_shared: Launch) -> Server:
    return launch_gateway(launch_shared, "-D", config=ACCOUNTS)


@pytest.fixture(scope="module")
def guarded(launch_shared: Launch) -> Server:
    block = "reject_unknown: true, authorization { user: u, password: p, timeout: 0.3 }"
    return launch_gateway(launch_shared, "-D", block=block, config=ACCOUNTS)


@pytest.fixture
def fake() -> Iterator[FakeGateway]:
    with FakeGateway() as fake:
        yield fake


@pytest.fixture
def listener() -> Iterator[GatewayListener]:
    with GatewayListener() as listener:
        yield listener


@pytest.fixture
def joined(launch: Launch, fake: FakeGateway, listener: GatewayListener) -> tuple[Server, GatewayPeer]:
    """A server that has dialled the fake one, and this connection: it brings messages, and takes interest."""
    server = launch_gateway(launch, "-D", remotes={fake.gateway: listener.url}, config=ACCOUNTS)
    return server, fake.accept(listener)


def full(fake: FakeGateway, account: str, *subjects: bytes) -> bytes:
    """Encode the change of an account to interest-only mode, with all its interest."""
    lines = b"".join(b"RS+ %s %s\r\n" % (account.encode(), subject) for subject in subjects)
    return fake.command(ALL_SUBS_START, account) + lines + fake.command(ALL_SUBS_COMPLETE, account)


# -- handshake -----------------------------------------------------------------------------------------------


def test_info_names_the_gateway_and_its_urls(server: Server, fake: FakeGateway) -> None:
    peer = fake.greet(server)
    host, port = gateway_address(server)
    members = [name for name, _ in json.loads(peer.seen[0][5:], object_pairs_hook=list)]
    assert [name for name in members if name in INFO_MEMBERS] == INFO_MEMBERS
    assert (peer.info["host"], peer.info["port"], peer.info["gateway"]) == (host, port, "G")
    assert peer.info["gateway_urls"] == [peer.info["gateway_url"]] == [f"{host}:{port}"]
    assert peer.info["gateway_nrp"] is peer.info["gateway_iom"] is True


def test_a_server_that_dials_answers_info_with_connect_and_info(joined: tuple[Server, GatewayPeer]) -> None:
    server, peer = joined
    members = [name for name, _ in json.loads(peer.seen[0][8:], object_pairs_hook=list)]
    assert members == CONNECT_MEMBERS
    assert (peer.connect["gateway"], peer.connect["cluster"]) == ("G", "")
    assert peer.connect["name"] == peer.info["server_id"]
    assert peer.info["gateway"] == "G"
    peer.wait_logged(server, 'DBG Gateway connect protocol sent to "F"')
    peer.wait_logged(server, 'INF Outbound gateway connection to "F" (NGATE', begins=True)


def test_an_accepted_gateway_is_sent_all_accounts_interest(server: Server, fake: FakeGateway) -> None:
    peer = fake.dial(server)
    ops = peer.take_accounts(ACCOUNT_COUNT)
    told = commands(ops)
    for account in "$G", "A", "B", "SYS":
        assert told.index((ALL_SUBS_START, account)) < told.index((ALL_SUBS_COMPLETE, account))
    assert b"RS+ $SYS.REQ.SERVER.PING" in interest(ops, b"SYS")
    peer.wait_logged(server, 'INF Inbound gateway connection from "F" (NGATE', begins=True)


REFUSED: dict[str, tuple[Callable[[FakeGateway], bytes], bytes, list[str]]] = {
    "a client": (
        lambda fake: encode("CONNECT", {"verbose": False, **PASSWORD}),
        b"-ERR 'attempted to connect to gateway port'\r\n",
        ["INF Gateway connection closed: Incorrect Port", "ERR attempted to connect to gateway port"],
    ),
    "an unknown cluster": (
        lambda fake: fake.connect(**PASSWORD),
        b"-ERR 'Connection to gateway \"G\" rejected'\r\n",
        [
            'ERR Rejecting connection from gateway "F"',
            "INF Gateway connection closed: Wrong Gateway",
            "ERR wrong gateway",
        ],
    ),
    "no user": (
        lambda fake: fake.connect(),
        VIOLATION,
        ["ERR authentication error", "INF Gateway connection closed: Authentication Failure"],
    ),
    "INFO first": (
        lambda fake: fake.info(),
        VIOLATION,
        ["ERR authentication error", "INF Gateway connection closed: Authentication Failure"],
    ),
    "PING first": (
        lambda fake: b"PING\r\n",
        VIOLATION,
        ["ERR authentication error", "INF Gateway connection closed: Authentication Failure"],
    ),
    "silence": (
        lambda fake: b"",
        b"-ERR 'Authentication Timeout'\r\n",
        ["DBG Authentication Timeout", "INF Gateway connection closed: Authentication Timeout"],
    ),
}


@pytest.mark.parametrize(("sent", "answer", "logged"), params(REFUSED))
def test_what_is_refused(
    sent: Callable[[FakeGateway], bytes],
    answer: bytes,
    logged: list[str],
    guarded: Server,
    fake: FakeGateway,
) -> None:
    peer = fake.greet(guarded)
    peer.send(sent(fake))
    assert peer.rest() == [answer]
    for line in logged:
        peer.wait_logged(guarded, line, begins=True)


CLOSED: dict[str, tuple[bytes, bytes, str]] = {
    "RS+": (b"RS+ A foo\r\n", b"", "ERR Received RS+ from gateway on inbound connection"),
    "RS-": (b"RS- A foo\r\n", b"", "ERR Received RS- from gateway on inbound connection"),
    "-ERR": (b"-ERR 'x'\r\n", b"", "ERR Gateway Error 'x'"),
    "LMSG": (
        b"LMSG foo 0\r\n\r\n",
        b"-ERR 'Unknown Protocol Operation'\r\n",
        "INF Gateway connection closed: Protocol Violation - Remote: ",
    ),
    "MSG": (
        b"MSG foo 1 0\r\n\r\n",
        b"-ERR 'Unknown Protocol Operation'\r\n",
        "INF Gateway connection closed: Protocol Violation - Remote: ",
    ),
}


@pytest.mark.parametrize(("sent", "answer", "logged"), params(CLOSED))
def test_what_closes_an_accepted_connection(
    sent: bytes, answer: bytes, logged: str, server: Server, fake: FakeGateway
) -> None:
    peer = fake.greet(server)
    peer.send(fake.connect() + fake.info() + sent)
    ops = [op for op in peer.rest() if not op.startswith((b"INFO ", b"RS+ "))]
    assert ops == ([answer] if answer else [])
    peer.wait_logged(server, logged, begins=True)


def test_a_server_name_of_its_own_is_refused_without_a_word(server: Server, fake: FakeGateway) -> None:
    peer = fake.greet(server)
    peer.send(fake.connect() + fake.info(server_name="S"))
    assert peer.rest() == []
    peer.wait_logged(server, 'ERR Remote server has a duplicate name: "S"')
    peer.wait_logged(server, "INF Gateway connection closed: Duplicate Server Name - Remote: S")


WRONG_ANSWERS: dict[str, tuple[dict[str, Any], bytes, str]] = {
    "of another port": (
        {"gateway": None},
        b"-ERR 'Attempt to connect to gateway \"F\" using wrong port'\r\n",
        'ERR Attempt to connect to gateway "F" using wrong port',
    ),
    "of another cluster": (
        {"gateway": "Z"},
        b'-ERR \'Connection from "G" rejected, wanted to connect to "F", this is "Z"\'\r\n',
        'ERR Failing connection to gateway "F", remote gateway name is "Z"',
    ),
    "of a server with the same name": (
        {"server_name": "S"},
        b"",
        'ERR Remote server has a duplicate name: "S"',
    ),
}


@pytest.mark.parametrize(("info", "answer", "logged"), params(WRONG_ANSWERS))
def test_an_info_that_the_dialling_server_refuses(
    info: dict[str, Any],
    answer: bytes,
    logged: str,
    launch: Launch,
    fake: FakeGateway,
    listener: GatewayListener,
) -> None:
    server = launch_gateway(launch, "-D", remotes={fake.gateway: listener.url}, config=ACCOUNTS)
    with listener.take() as peer:
        peer.local = listener.address
        peer.send(fake.info(**info))
        assert peer.rest() == ([answer] if answer else [])
        peer.wait_logged(server, logged)
    fake.accept(listener)  # it dials again


# -- gossip --------------------------------------------------------------------------------------------------


def test_a_cluster_that_dials_is_dialled(
    server: Server, fake: FakeGateway, listener: GatewayListener
) -> None:
    with FakeGateway("BACK") as other:
        other.dial(server, gateway_urls=[listener.address])
        assert other.accept(listener).connect["gateway"] == "G"


def test_a_server_dials_the_clusters_that_a_peer_tells_of_and_tells_of_them(
    joined: tuple[Server, GatewayPeer], fake: FakeGateway
) -> None:
    server, peer = joined
    with FakeGateway("H") as other, GatewayListener() as there, FakeGateway("I") as third:
        about = {"server_id": "X", "gateway": "H", "gateway_urls": [there.address], "gateway_cmd": GOSSIP}
        peer.send(encode("INFO", about))
        other.accept(there)
        opening = third.dial(server).opening
        told = [json.loads(op[5:]) for op in opening if b'"gateway_cmd":1' in op]
        assert {info["gateway"] for info in told} == {"F", "H"}
        assert {info["server_id"] for info in told} == {peer.info["server_id"]}


# -- interest ------------------------------------------------------------------------------------------------


def test_interest_of_clients_is_announced_once(server: Server, fake: FakeGateway) -> None:
    peer = fake.dial(server)
    peer.take_accounts(ACCOUNT_COUNT)
    with user(server, "a") as client:
        client.send(b"SUB foo 1\r\nSUB foo 2\r\nSUB q g 3\r\n")
        client.fence()
        assert interest(peer.fence(), b"A") == [b"RS+ foo", b"RS+ q g 1"]
        client.send(b"UNSUB 1\r\nUNSUB 3\r\n")
        client.fence()
        assert interest(peer.fence(), b"A") == [b"RS- q g"]
        client.send(b"UNSUB 2\r\n")
        client.fence()
        assert interest(peer.fence(), b"A") == [b"RS- foo"]


def test_a_message_for_an_unknown_account_is_answered_once(server: Server, fake: FakeGateway) -> None:
    peer = fake.dial(server)
    peer.message(b"NONE", b"foo")
    peer.message(b"NONE", b"bar")
    assert interest(peer.fence(), b"NONE") == [b"A-"]
    peer.wait_logged(server, 'DBG Unknown account "NONE" for gateway message on subject: "foo"')


def test_messages_of_a_peer_reach_clients_and_the_groups_that_they_name(
    server: Server, fake: FakeGateway
) -> None:
    peer = fake.dial(server)
    with user(server, "a") as client:
        client.send(b"SUB m 1\r\nSUB m g 2\r\n")
        client.fence()
        for to, sids in (b"", [b"1"]), (b"| g", [b"1", b"2"]), (b"+ r g", [b"1", b"2"]), (b"| no", [b"1"]):
            peer.message(b"A", b"m", b"x", to=to)
            peer.fence()
            assert sorted(op.split()[2] for op in client.fence()) == sids


def test_optimistic_sends_until_there_is_no_interest(
    kind: Kind, launch: Launch, fake: FakeGateway, listener: GatewayListener
) -> None:
    """To a peer that does not announce all interest by itself: no gateway_iom."""
    if not kind.is_reference:
        pytest.skip("gnats refuses such peers, see test_gateways_dial.py")
    server = launch_gateway(launch, remotes={"F": listener.url}, config=ACCOUNTS)
    peer = fake.accept(listener, gateway_iom=None)

    def sent(*subjects: str) -> list[bytes]:
        with user(server, "a") as client:
            client.send(b"".join(map(publish_op, subjects)))
            client.fence()
        return [op.split()[2] for op in messages(peer.fence()) if op.startswith(b"RMSG A ")]

    assert sent("x") == [b"x"]
    peer.send(b"RS- A x\r\n")
    peer.fence()
    assert sent("x", "y") == [b"y"]
    peer.send(b"RS+ A *\r\n")
    peer.fence()
    assert sent("x") == [b"x"]
    peer.send(b"A- A\r\n")
    peer.fence()
    assert sent("x") == []
    peer.send(b"A+ A\r\n")
    peer.fence()
    assert sent("x") == [b"x"]
    peer.send(b"RS- A z\r\n" + fake.command(ALL_SUBS_START, "A"))
    peer.fence()
    assert sent("x", "y", "z") == [b"x", b"y"]
    peer.send(b"RS+ A x\r\n" + fake.command(ALL_SUBS_COMPLETE, "A"))
    peer.fence()
    assert sent("x", "y") == [b"x"]


def test_a_group_that_has_a_member_here_gets_no_message_there(
    joined: tuple[Server, GatewayPeer], fake: FakeGateway
) -> None:
    server, peer = joined
    peer.send(full(fake, "A", b"y g 1"))
    peer.fence()
    with user(server, "a") as client:
        client.send(publish_op("y") + publish_op("y", reply="r"))
        client.fence()
        assert messages(peer.fence()) == [b"RMSG A y | g 0\r\n\r\n", b"RMSG A y + r g 0\r\n\r\n"]
        client.send(b"SUB y g 1\r\n" + publish_op("y"))
        assert client.fence() == [b"MSG y 1 0\r\n\r\n"]
        assert messages(peer.fence()) == []


def test_what_comes_over_a_gateway_goes_to_no_other(
    joined: tuple[Server, GatewayPeer], fake: FakeGateway
) -> None:
    server, peer = joined
    peer.send(full(fake, "A", b"x"))
    peer.fence()
    with FakeGateway("H") as other:
        source = other.dial(server)
        source.message(b"A", b"x")
        source.fence()
    assert messages(peer.fence()) == []


@pytest.mark.parametrize(
    ("line", "answer", "logged"),
    params(
        {
            "no subject": (b"RS+ A\r\n", b"", "ERR processGatewaySubjectSub Parse Error: 'A'"),
            "no weight": (b"RS+ A w q\r\n", b"", "ERR processGatewaySubjectSub Parse Error: 'A w q'"),
            "INFO of another port": (
                b"INFO {}\r\n",
                b"-ERR 'Attempt to connect to gateway \"F\" using wrong port'\r\n",
                'ERR Attempt to connect to gateway "F" using wrong port',
            ),
            "a command without an account": (
                b'INFO {"gateway":"F","gateway_cmd":2}\r\n',
                b"-ERR 'Account absent from receive-all-subscriptions-start command'\r\n",
                "ERR Account absent from receive-all-subscriptions-start command",
            ),
        }
    ),
)
def test_what_closes_a_dialled_connection(
    line: bytes, answer: bytes, logged: str, joined: tuple[Server, GatewayPeer]
) -> None:
    server, peer = joined
    peer.send(line)
    assert peer.rest() == ([answer] if answer else [])
    peer.wait_logged(server, logged)
    peer.wait_logged(server, "INF Gateway connection closed: ", begins=True)


def test_gatewayz_shows_the_mode_of_each_account(
    joined: tuple[Server, GatewayPeer], fake: FakeGateway
) -> None:
    server, peer = joined
    peer.send(full(fake, "A", b"x", b"y g 1"))
    peer.fence()
    page = monitor(server, "/gatewayz?acc_name=A&subs=1")
    (account,) = page["outbound_gateways"]["F"]["accounts"]
    assert sorted(account.pop("subscriptions_list")) == ["x", "y"]
    assert account == {
        "name": "A",
        "interest_mode": "Interest-Only",
        "interest_only_threshold": 1000,
        "num_subs": 2,
        "num_queue_subs": 1,
    }


# -- mapped replies ------------------------------------------------------------------------------------------


def test_a_recent_inbox_is_mapped_and_the_answer_finds_back(
    joined: tuple[Server, GatewayPeer], fake: FakeGateway
) -> None:
    server, peer = joined
    peer.send(full(fake, "A", b"x"))
    peer.fence()
    back = fake.dial(server)
    with user(server, "a") as client:
        client.send(b"SUB inbox 1\r\n" + publish_op("x", reply="inbox") + publish_op("x", reply="other"))
        client.fence()
        mapped, other = (op.split()[3] for op in messages(peer.fence()))
        found = REPLY.fullmatch(mapped)
        assert found
        assert found.groups() == (name_hash("G"), name_hash(peer.info["server_id"]), b"inbox")
        assert other == b"other"
        back.message(b"A", mapped, b"answer")
        assert client.read_op() == b"MSG inbox 1 6\r\nanswer\r\n"
        back.message(b"A", mapped.replace(name_hash("G"), b"QQQQQQ"), b"astray")
        back.fence()
        assert client.fence() == []


def test_an_answer_to_a_mapped_reply_goes_back_mapped(
    joined: tuple[Server, GatewayPeer], fake: FakeGateway
) -> None:
    server, peer = joined
    source = fake.dial(server)
    reply = b"_GR_." + name_hash("F") + b".SSSSSS.inbox"
    with user(server, "a") as client, user(server, "a") as other:
        client.send(b"SUB req 1\r\n")
        client.fence()
        source.message(b"A", b"req", b"x", to=reply)
        assert client.read_op() == b"MSG req 1 inbox 1\r\nx\r\n"
        for _ in range(2):
            client.send(publish_op("inbox", b"answer"))
            client.fence()
            assert messages(peer.fence()) == [b"RMSG A " + reply + b" 6\r\nanswer\r\n"]
        other.send(publish_op("inbox", b"answer"))  # it has not been asked
        other.fence()
        assert messages(peer.fence()) == []


def test_clients_may_not_publish_mapped_replies(server: Server) -> None:
    with user(server, "a") as client:
        client.send(publish_op("_GR_.a.b.c"))
        assert client.fence() == [b"-ERR 'Permissions Violation for Publish to \"_GR_.a.b.c\"'\r\n"]


def test_a_service_request_crosses_with_a_mapped_response_subject(
    joined: tuple[Server, GatewayPeer], fake: FakeGateway
) -> None:
    server, peer = joined
    peer.send(full(fake, "A", b"srv"))
    peer.fence()
    back = fake.dial(server)
    with user(server, "b") as client:
        client.send(b"SUB inbox 1\r\n" + publish_op("bsrv", b"x", reply="inbox"))
        client.fence()
        (request,) = messages(peer.fence())
        verb, account, subject, reply = request.split()[:4]
        assert (verb, account, subject) == (b"HMSG", b"A", b"srv")
        assert re.fullmatch(rb"_GR_\.\w{6}\.\w{6}\._R_\.\w{6}\.\w{6}", reply)
        back.message(b"A", reply, b"done")
        assert client.read_op() == b"MSG inbox 1 4\r\ndone\r\n"


# -- URLs of the cluster -------------------------------------------------------------------------------------


def test_urls_that_a_peer_names_are_shown(joined: tuple[Server, GatewayPeer], fake: FakeGateway) -> None:
    server, peer = joined
    peer.send(fake.info(gateway_urls=["127.0.0.1:9"]))
    peer.fence()

    def urls() -> list[str]:
        return sorted(monitor(server, "/varz")["gateway"]["gateways"][0]["urls"])

    until(lambda: len(urls()) == 2)
    assert "127.0.0.1:9" in urls()
