"""A server that dials remotes as a leaf node: its handshake, what it refuses, when it dials again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.launch import Launch
from support.leafpeer import (
    FakeLeaf,
    LeafListener,
    LeafPeer,
    interest,
    launch_accepting,
    launch_soliciting,
    leaf_address,
    loop_subject,
)
from support.monitor import monitor
from support.routepeer import LISTENING as ROUTES_LISTENING
from support.servers import Server, reserve_port, until
from support.wire import Connection

from .cases import params
from .differences import CONNECT_EXTRA

pytestmark = pytest.mark.timeout(60)

SERVICES = [
    b"LS+ $SYS.REQ.ACCOUNT.PING.CONNZ",
    b"LS+ $SYS.REQ.ACCOUNT.PING.STATZ",
    b"LS+ $SYS.REQ.SERVER.PING.CONNZ",
    b"LS+ $SYS.REQ.USER.INFO",
]
CREATED = "INF Leafnode connection created for account: $G "
WRONG_PORT = "ERR attempted to connect to wrong port"
NAMES = {"a b": "cluster name cannot contain spaces", "_": "cluster name is reserved"}
"""Names that no cluster can have, and why."""


@pytest.fixture
def listener() -> Iterator[LeafListener]:
    with LeafListener() as listener:
        yield listener


@pytest.fixture
def fake(listener: LeafListener) -> Iterator[FakeLeaf]:
    """The server that `listener` belongs to."""
    with FakeLeaf(leafnode_urls=[listener.address]) as fake:
        yield fake


def named(peer: LeafPeer, listener: LeafListener) -> LeafPeer:
    """Have a peer look for its lines in the log under the address that was dialled."""
    peer.local = listener.address
    return peer


def closed(reason: str, name: str = "") -> str:
    remote = f" - Remote: {name}" if name else ""
    return f"INF Leafnode connection closed: {reason}{remote}"


def test_connect(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    server = launch_soliciting(launch, listener.url, config="server_name: S")
    peer = named(fake.accept(listener), listener)
    sent = [(name, value) for name, value in peer.connect.items() if name not in CONNECT_EXTRA]
    assert sent == [
        ("version", monitor(server, "/varz")["version"]),
        ("server_id", monitor(server, "/varz")["server_id"]),
        *[("name", "S"), ("cluster", "S"), ("headers", True), ("compress_mode", "not supported")],
        *[("remote_account", "$G"), ("protocol", 3)],
    ]
    server.wait_log(rf'\[DBG\] Trying to connect as leafnode to remote server on "{listener.address}"\n')
    peer.wait_logged(server, CREATED)
    peer.wait_logged(server, "DBG Remote leafnode connect msg sent")


def test_connect_of_a_cluster(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    config = "server_name: S\ncluster { name: C, listen: '127.0.0.1:-1' }"
    launch_soliciting(launch, listener.url, config=config)
    assert fake.accept(listener).connect["cluster"] == "C"


def test_the_options_of_a_remote(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    remote = 'deny_imports: ["a.>"], deny_exports: b, hub: true, request_isolation: true'
    launch_soliciting(launch, listener.url, remote=remote, config="server_name: S")
    peer = fake.accept(listener)
    assert list(peer.connect)[2:8] == ["name", "is_hub", "cluster", "headers", "deny_pub", "isolate"]
    assert (peer.connect["is_hub"], peer.connect["deny_pub"]) == (True, ["a.>"])


LOGINS = {
    "user and password": ("u:p%40@", {"user": "u", "pass": "p@"}),
    "user": ("u@", {"user": "u", "auth_token": "u"}),
}


@pytest.mark.parametrize(("login", "found"), params(LOGINS))
def test_the_login_of_the_url(
    launch: Launch, listener: LeafListener, fake: FakeLeaf, login: str, found: dict[str, str]
) -> None:
    launch_soliciting(launch, listener.url.replace("//", f"//{login}"))
    connect = fake.accept(listener).connect
    assert {name: connect[name] for name in ("user", "pass", "auth_token") if name in connect} == found
    assert list(connect)[1 : 1 + len(found)] == list(found)


def test_nothing_is_sent_before_info(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    launch_soliciting(launch, listener.url)
    with listener.take() as peer:
        peer.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            peer.read_op()
        peer.sock.settimeout(30)
        peer.send(fake.info())
        peer.take_connect()


def test_interest_follows_the_second_info(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    server = launch_soliciting(launch, listener.url)
    peer = named(fake.accept(listener), listener)
    assert peer.fence() == []
    fake.answer(peer, account="R")
    assert interest(peer.opening) == SERVICES
    assert re.fullmatch(rb"\$LDS\.\w{22}", loop_subject(peer.opening))
    peer.wait_logged(server, 'INF JetStream using domains: local "", remote ""')
    with Connection(server.address) as client:
        client.send(b"CONNECT {}\r\nSUB foo 1\r\nSUB bar q 2\r\n")
        assert interest(peer.after_client(client)) == [b"LS+ bar q 1", b"LS+ foo"]
    assert leafs(server) == [(fake.name, True, "$G", "not supported")]


def leafs(server: Server) -> list[tuple[Any, ...]]:
    """Return the name, the role, the account and the compression of the entries on /leafz."""
    found: list[dict[str, Any]] = monitor(server, "/leafz")["leafs"]
    return [(each["name"], each["is_spoke"], each["account"], each["compression"]) for each in found]


def test_an_old_server_sends_one_info(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    launch_soliciting(launch, listener.url)
    peer = fake.accept(listener, info_on_connect=None)
    assert interest(peer.until(PONG_OF(peer))) == SERVICES


def PONG_OF(peer: LeafPeer) -> bytes:
    """Send a PING, and return the beginning of its answer."""
    peer.send(b"PING\r\n")
    return b"PONG"


def test_messages_both_ways(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    server = launch_soliciting(launch, listener.url)
    peer = fake.serve(listener)
    with Connection(server.address) as client:
        client.send(b'CONNECT {"verbose":false}\r\nSUB in 1\r\n')
        client.fence()
        peer.await_op(b"LS+ in")
        peer.publish(b"in", b"hello")
        client.read_until(b"MSG in 1 5\r\nhello\r\n")
        peer.subscribe(b"out")
        client.send(b"PUB out 2\r\nhi\r\n")
        assert peer.await_op(b"LMSG ") == b"LMSG out 2\r\nhi\r\n"


def refused(
    server: Server, listener: LeafListener, peer: LeafPeer, *lines: str, answer: bytes | None = b""
) -> None:
    """Check that a server closes a connection, and what it logs of it."""
    if answer is not None:
        assert b"".join(peer.rest()) == answer
    named(peer, listener)
    for line in lines:
        peer.wait_logged(server, line)


@pytest.mark.parametrize(
    "info",
    [
        {"client_id": None},
        {"client_id": None, "leafnode_urls": None},
        {"leafnode_urls": None, "info_on_connect": None},
    ],
)
def test_an_info_of_another_port(
    launch: Launch, listener: LeafListener, fake: FakeLeaf, info: dict[str, Any]
) -> None:
    server = launch_soliciting(launch, listener.url)
    with listener.take() as peer:
        peer.send(fake.info(**info))
        refused(server, listener, peer, CREATED, WRONG_PORT, closed("Incorrect Port"))
    listener.take().close()  # it dials again


@pytest.mark.parametrize("missing", ["leafnode_urls", "info_on_connect"])
def test_an_info_of_a_leaf_node_port(
    launch: Launch, listener: LeafListener, fake: FakeLeaf, missing: str
) -> None:
    """One that does not advertise its URL, and one that does not say that it answers CONNECT."""
    launch_soliciting(launch, listener.url)
    with listener.take() as peer:
        peer.send(fake.info(**{missing: None}))
        assert peer.await_op(b"CONNECT ")


@pytest.mark.parametrize("port", ["client", "route"])
def test_the_port_for_others(launch: Launch, port: str) -> None:
    hub = launch_accepting(launch, config="cluster { name: C, listen: '127.0.0.1:-1' }")
    address = hub.address if port == "client" else hub.wait_log(ROUTES_LISTENING).groups()
    server = launch_soliciting(launch, f"nats-leaf://{address[0]}:{address[1]}")
    level, _, text = WRONG_PORT.partition(" ")
    server.wait_log(rf"\[{level}\] {address[0]}:{address[1]} - lid:\d+ - {text}\n")
    server.wait_log(rf"{address[1]} - lid:\d+ - Leafnode connection closed: Incorrect Port\n")


@pytest.mark.parametrize(("name", "why"), NAMES.items())
def test_a_name_that_no_cluster_can_have(
    launch: Launch, listener: LeafListener, fake: FakeLeaf, name: str, why: str
) -> None:
    server = launch_soliciting(launch, listener.url)
    with listener.take() as peer:
        peer.send(fake.info(cluster=name))
        error = f"-ERR '{why}'\r\n".encode()
        refused(server, listener, peer, f"ERR {why}", closed("Protocol Violation"), answer=error)


def test_a_servers_name_that_no_cluster_can_have(launch: Launch, listener: LeafListener) -> None:
    """A server outside of a cluster has its own name as that of its cluster."""
    with pytest.raises(RuntimeError, match="cluster name is reserved"):
        launch_soliciting(launch, listener.url, config="server_name: _")


@pytest.mark.parametrize("host", ["x" * 64, "..", "\ufffd"])
def test_a_name_that_no_server_can_have(
    launch: Launch, listener: LeafListener, fake: FakeLeaf, host: str
) -> None:
    launch_soliciting(launch, listener.url)
    fake.serve(listener, leafnode_urls=[f"{host}:1"]).close()
    fake.serve(listener).close()


def test_no_first_info(launch: Launch, listener: LeafListener) -> None:
    server = launch_soliciting(launch, listener.url, remote="first_info_timeout: '0.2s'")
    with listener.take() as peer:
        refused(server, listener, peer, CREATED, closed("Read Error"))
    listener.take().close()


def test_no_second_info(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    server = launch_soliciting(launch, listener.url)
    peer = fake.accept(listener)
    error = "Stale Leaf Node Connection - Closing"
    lines = f"DBG {error}", closed("Stale Connection", fake.name)
    refused(server, listener, peer, *lines, answer=f"-ERR '{error}'\r\n".encode())


def test_the_other_side_leaves_at_once(launch: Launch, listener: LeafListener) -> None:
    server = launch_soliciting(launch, listener.url)
    with listener.take() as peer:
        peer.close()
        refused(server, listener, peer, CREATED, closed("Client Closed"), answer=None)
    listener.take().close()


def test_the_other_side_leaves(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    server = launch_soliciting(launch, listener.url)
    peer = fake.serve(listener)
    peer.close()
    refused(server, listener, peer, closed("Client Closed", fake.name), answer=None)
    assert interest(fake.serve(listener).opening) == SERVICES


def test_ping_before_info(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    launch_soliciting(launch, listener.url)
    with listener.take() as peer:
        peer.send(b"PING\r\n" + fake.info())
        peer.await_op(b"CONNECT ")


ERRORS = {
    "loop": (
        'Loop detected for leafnode account="R". Delaying attempt to reconnect for 30s',
        'ERR Loop detected for leafnode account="$G". Delaying attempt to reconnect for 30s',
    ),
    "cluster name": (
        "remote leafnode has same cluster name",
        "ERR Leafnode connection dropped with same cluster name error. Delaying attempt to reconnect for 30s",
    ),
    "version": (
        'connection rejected since minimum version required is "2.10.0"',
        "ERR Leafnode connection dropped due to minimum version requirement."
        " Delaying attempt to reconnect for 5s",
    ),
}


@pytest.mark.parametrize(("error", "line"), params(ERRORS))
def test_an_error_that_delays(
    launch: Launch, listener: LeafListener, fake: FakeLeaf, error: str, line: str
) -> None:
    server = launch_soliciting(launch, listener.url)
    peer = fake.serve(listener)
    peer.send(f"-ERR '{error}'\r\n".encode())
    refused(server, listener, peer, f"ERR Leafnode Error '{error}'", line, answer=None)


def test_another_error_does_not_close(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    server = launch_soliciting(launch, listener.url)
    peer = fake.serve(listener)
    peer.send(b"-ERR 'Authorization Violation'\r\n")
    assert peer.fence() == []
    refused(server, listener, peer, "ERR Leafnode Error 'Authorization Violation'", answer=None)


def test_a_loop(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    server = launch_soliciting(launch, listener.url)
    peer = fake.serve(listener)
    peer.send(b"LS+ " + loop_subject(peer.opening) + b"\r\n")
    error = 'Loop detected for leafnode account="$G". Delaying attempt to reconnect for 30s'
    lines = f"ERR {error}", closed("Protocol Violation", fake.name)
    refused(server, listener, peer, *lines, answer=f"-ERR '{error}'\r\n".encode())


def test_the_permissions_of_the_answer(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    """A spoke obeys them without a word: it announces, takes and sends no more than they allow."""
    server = launch_soliciting(launch, listener.url)
    peer = fake.accept(listener)
    allowed = {"import": {"allow": ["a.>"], "deny": ["a.no"]}, "export": {"allow": ["x.>"]}}
    fake.answer(peer, **allowed)
    assert interest(peer.opening) == []
    with Connection(server.address) as client:
        client.send(b'CONNECT {"verbose":false}\r\nSUB a.yes 1\r\nSUB a.no 2\r\nSUB b 3\r\nPING\r\n')
        client.fence()
        assert peer.await_op(b"LS+ ") == b"LS+ a.yes\r\n"
        assert peer.subscribe(b"x.1", b"y.1") == []
        client.send(b"PUB y.1 0\r\n\r\nPUB x.1 0\r\n\r\n")
        assert peer.await_op(b"LMSG ") == b"LMSG x.1 0\r\n\r\n"
        peer.publish(b"b", b"no")
        peer.publish(b"a.yes", b"yes")
        client.read_until(b"MSG a.yes 1 3\r\nyes\r\n")


def test_permissions_that_change(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    """Another INFO brings them, or brings the same ones, or none: then those before hold."""
    server = launch_soliciting(launch, listener.url)
    peer = fake.accept(listener)
    allowed = {"import": {"allow": ["a.>"]}, "export": {"allow": ["x.>"]}}
    fake.answer(peer, **allowed)
    with Connection(server.address) as client:
        client.send(b'CONNECT {"verbose":false}\r\nSUB a.1 1\r\nSUB b.1 2\r\nPING\r\n')
        client.fence()
        assert peer.await_op(b"LS+ ") == b"LS+ a.1\r\n"
        peer.subscribe(b"x.1", b"y.1")
        for same in allowed, {}:
            peer.send(fake.info(nonce=None, **same) * 20)
            assert interest(peer.fence()) == []
            client.send(b"PUB y.1 1\r\nn\r\nPUB x.1 1\r\ny\r\n")
            assert peer.await_op(b"LMSG ") == b"LMSG x.1 1\r\ny\r\n"
        peer.send(fake.info(nonce=None, **{"import": {"allow": ["b.>"]}, "export": {"allow": ["y.>"]}}))

        peer.subscribe(b"y.1")  # that from before has not been taken
        client.send(b"PUB y.1 1\r\ny\r\n")
        assert peer.await_op(b"LMSG ") == b"LMSG y.1 1\r\ny\r\n"
        peer.publish(b"a.1", b"no")
        peer.publish(b"b.1", b"yes")
        client.read_until(b"MSG b.1 2 3\r\nyes\r\n")


DENIED = {
    "interest": (b"LS+ b\r\n", "Subscription to", "Subscription"),
    "message": (b"LMSG b 0\r\n\r\n", "Publish to", "Publish"),
}


@pytest.mark.parametrize(("sent", "what", "action"), params(DENIED))
def test_denied_exports_of_a_hub(
    launch: Launch, listener: LeafListener, fake: FakeLeaf, sent: bytes, what: str, action: str
) -> None:
    server = launch_soliciting(launch, listener.url, remote="deny_exports: b, hub: true")
    peer = fake.serve(listener)
    peer.send(sent)
    error = f'Permissions Violation for {what} "b"'
    lines = f'ERR {action} Violation on "b" - Check other side configuration', closed("Protocol Violation")
    refused(server, listener, peer, lines[0], answer=f"-ERR '{error}'\r\n".encode())


@pytest.mark.parametrize("wide", ["here", "there"])
def test_denied_imports_are_not_sent_through_wildcards(
    launch: Launch, listener: LeafListener, fake: FakeLeaf, wide: str
) -> None:
    """Once interest at either end includes subjects that the spoke does not import, it sends none of them."""
    server = launch_soliciting(launch, listener.url, remote="deny_imports: 'a.>'")
    peer = fake.serve(listener)
    with Connection(server.address) as client:
        client.send(b'CONNECT {"verbose":false}\r\n')

        def sent() -> list[bytes]:
            """Return the subjects of messages that come to the peer."""
            client.send(b"".join(b"PUB %s 0\r\n\r\n" % subject for subject in (b"a.1", b"a.x", b"b.x")))
            client.fence()
            ops = peer.after_client(client)
            return [op.split()[1] for op in ops if op.startswith(b"LMSG ")]

        peer.subscribe(b"a.1", b"b.*")
        assert sent() == [b"a.1", b"b.x"]
        if wide == "there":
            peer.subscribe(b"*.x")
        else:
            client.send(b"SUB *.y 1\r\n")
            assert peer.await_op(b"LS+ ") == b"LS+ *.y\r\n"
        assert sent() == [b"b.x"]


def test_two_accounts(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    """One remote each: the same server twice, for different accounts."""
    accounts = "accounts { A { users [ {user: a, password: p} ] }, B { users [ {user: b, password: p} ] } }"
    remotes = "\n".join(
        f"{{ urls: [{json.dumps(listener.url)}], account: {name}, compression: off }}" for name in "AB"
    )
    config = f"leafnodes {{ reconnect: '0.2s', remotes [ {remotes} ] }}\n{accounts}"
    server = launch("-m", "-1", "-D", config=config)
    peers = [fake.accept(listener), fake.accept(listener)]
    assert sorted(peer.connect["remote_account"] for peer in peers) == ["A", "B"]
    for peer in peers:
        fake.answer(peer, account=peer.connect["remote_account"])
    assert len({loop_subject(peer.opening) for peer in peers}) == 2
    until(lambda: {each[2] for each in leafs(server)} == {"A", "B"})


def test_nobody_listens(launch: Launch) -> None:
    port = reserve_port(launch)
    server = launch_soliciting(launch, f"nats-leaf://127.0.0.1:{port}")
    what = rf'Error trying to connect as leafnode to remote server "127.0.0.1:{port}"'
    error = rf"dial tcp 127.0.0.1:{port}: connect: connection refused\n"
    server.wait_log(rf"\[ERR\] {what} \(attempt 1\): {error}")
    server.wait_log(rf"\[DBG\] {what} \(attempt 2\): {error}")
    with LeafListener(port) as listener, FakeLeaf() as fake:
        fake.serve(listener)


def test_a_name_is_looked_up(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    url = f"nats-leaf://localhost:{listener.port}"
    server = launch_soliciting(launch, url)
    fake.serve(listener)
    server.wait_log(rf'remote server on "localhost:{listener.port}" \(127\.0\.0\.1:{listener.port}\)\n')


def test_the_next_url_after_a_failure(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    port = reserve_port(launch)
    urls = f"nats-leaf://127.0.0.1:{port}", listener.url
    server = launch_soliciting(launch, *urls, remote="no_randomize: true")
    fake.serve(listener)
    assert f'remote server "127.0.0.1:{port}" (attempt 1)' in server.log


def test_a_server_that_the_remote_tells_of(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    with LeafListener() as other:
        server = launch_soliciting(launch, listener.url)
        peer = fake.serve(listener, leafnode_urls=[listener.address, other.address])
        peer.send(fake.info(nonce=None, leafnode_urls=[listener.address, other.address]))
        peer.fence()
        listener.close()
        peer.close()
        assert fake.accept(other).connect["name"] == monitor(server, "/varz")["server_name"]


def test_compression_is_agreed_on(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    server = launch_soliciting(launch, listener.url, remote="compression: s2_fast")
    with listener.take() as peer:
        peer.send(fake.info(compression="s2_fast"))
        info = json.loads(peer.read_op()[5:])
        assert list(info) == [
            *("server_id", "server_name", "version", "proto", "go", "host", "port", "headers"),
            *("max_payload", "client_id", "compression"),
        ]
        assert (info["server_id"], info["compression"]) == ("", "s2_fast")
        peer.compress()
        peer.send(fake.info(compression="s2_fast"))
        assert peer.take_connect()["compress_mode"] == "s2_fast"
        fake.answer(peer)
        assert interest(peer.opening) == SERVICES
        assert leafs(server) == [(fake.name, True, "$G", "s2_fast")]


@pytest.mark.parametrize("theirs", ["off", "not supported", None])
def test_a_remote_without_compression(
    launch: Launch, listener: LeafListener, fake: FakeLeaf, theirs: str | None
) -> None:
    launch_soliciting(launch, listener.url, remote="compression: s2_fast")
    assert fake.accept(listener, compression=theirs).connect["compress_mode"] == (theirs or "not supported")


def test_an_unknown_compression(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    server = launch_soliciting(launch, listener.url, remote="compression: s2_fast")
    with listener.take() as peer:
        peer.send(fake.info(compression="x"))
        error = 'unsupported route compression mode "x"'
        lines = f"ERR {error}", closed("Protocol Violation")
        refused(server, listener, peer, *lines, answer=f"-ERR '{error}'\r\n".encode())


def test_a_disabled_remote_is_not_dialled(launch: Launch, listener: LeafListener) -> None:
    launch_soliciting(launch, listener.url, remote="disabled: true")
    assert not listener.pending()


def test_clients_see_the_name_of_the_cluster(launch: Launch, listener: LeafListener) -> None:
    server = launch_soliciting(launch, listener.url, config="server_name: S")
    with Connection(server.address) as client:
        assert client.info["cluster"] == "S"
    assert "name" not in monitor(server, "/varz")["cluster"]
    assert "Cluster:" not in server.log


def test_two_servers_of_one_cluster_are_a_loop(
    launch: Launch, listener: LeafListener, fake: FakeLeaf
) -> None:
    """A server that is the hub of a cluster's leaf node dials a server of that cluster."""
    block = "listen: '127.0.0.1:-1'"
    server = launch_soliciting(launch, listener.url, block=block)
    with FakeLeaf(cluster="X") as leaf:
        leaf.dial(leaf_address(server))
        peer = fake.accept(listener, cluster="X")
        peer.send(fake.info(connect_info=True, remote_account="R", nonce=None, cluster="X"))
        error = 'Loop detected for leafnode account="$G". Delaying attempt to reconnect for 30s'
        refused(server, listener, peer, f"ERR {error}", answer=f"-ERR '{error}'\r\n".encode())


BOTH_WAYS = "listen: '127.0.0.1:-1'"
LOOP = 'Loop detected for leafnode account="$G". Delaying attempt to reconnect for '


@pytest.mark.parametrize("hub", [None, True], ids=["a spoke", "a hub"])
def test_a_server_that_was_dialled_dials(
    launch: Launch, listener: LeafListener, fake: FakeLeaf, hub: bool | None
) -> None:
    """Two connections for the same accounts: nats-server has both, and each message comes twice."""
    server = launch_soliciting(launch, listener.url, block=BOTH_WAYS)
    peer = fake.serve(listener)
    other = fake.dial(server, is_hub=hub, remote_account="other")  # another account
    other.close()
    back = fake.greet(server)
    back.send(fake.connect(is_hub=hub))
    if server.kind.is_reference:
        back.take_connected()
    else:
        assert back.rest() == [f"-ERR '{LOOP}30s'\r\n".encode()]
        back.wait_logged(server, f"ERR {LOOP}30s")
    assert peer.fence() == []


def test_a_server_that_has_dialled_is_dialled(launch: Launch, listener: LeafListener, fake: FakeLeaf) -> None:
    """They may both do so at once: the next attempt comes at a random time, a further one later."""
    server = launch_soliciting(launch, listener.url, block=BOTH_WAYS)
    first = fake.serve(listener)
    back = fake.greet(server)
    first.close()
    until(lambda: not monitor(server, "/leafz")["leafnodes"])
    back.send(fake.connect())
    back.take_connected()
    back.opening = back.fence()
    for delay in r"(\d{3}ms|[1-3](\.\d+)?s)", r"3[0-3](\.\d+)?s":
        peer = fake.accept(listener)
        peer.send(fake.info(connect_info=True, remote_account="$G", nonce=None))
        if server.kind.is_reference:
            assert peer.fence()
            break
        (answer,) = peer.rest()
        assert re.fullmatch(rf"-ERR '{re.escape(LOOP)}{delay}'\r\n".encode(), answer), answer
        assert back.fence() == []
