"""A server that accepts routes: its INFO, whom it refuses and why, what it logs and shows of a route."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.certs import Certificates
from support.clusters import launch_routed
from support.launch import Launch
from support.monitor import monitor
from support.routepeer import GLOBAL, SYSTEM, Fake, RoutePeer
from support.servers import REFERENCE, Server, until
from support.tlswire import client_context
from support.wire import Connection

from .cases import params
from .differences import INFO_EXTRA, INFO_MISSING

pytestmark = pytest.mark.timeout(60)

VOLATILE = {"server_id", "port", "nonce", "connect_urls"}
VIOLATION = b"-ERR 'Authorization Violation'\r\n"
CREATED = "INF Route connection created"
CONFLICT = "cluster name from remote server conflicts"
PASSWORD = {"pass": "rp"}


@pytest.fixture(scope="module")
def server(launch_shared: Launch) -> Server:
    return launch_routed(launch_shared, "-D", config="server_name: S")


@pytest.fixture(scope="module")
def guarded(launch_shared: Launch) -> Server:
    block = "authorization { user: ru, password: rp, timeout: 0.2 }"
    return launch_routed(launch_shared, "-D", config="server_name: S", cluster=block)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with Fake() as fake:
        yield fake


SETTINGS = {
    "defaults": ("", ""),
    "authorization": ("authorization { user: ru, password: rp }", ""),
    "no_advertise": ("no_advertise: true", ""),
    "cluster_advertise": ("cluster_advertise: '1.2.3.4:99'", ""),
    "client_advertise": ("", "client_advertise: '1.2.3.4:99'"),
    "permissions": ("permissions { import: ['a.>', b], export { allow: 'c.*', deny: [d] } }", ""),
    "large pool": ("pool_size: 5", ""),
    "no pool": ("pool_size: -1", ""),
    "maximum payload": ("", "max_payload: 1000"),
    "pinned account": ("accounts: [A]", "accounts { A { users: [ { user: a, password: p } ] } }"),
}


def fields(peer: RoutePeer) -> list[tuple[str, Any]]:
    """Return the members of the first INFO in order, without those that may differ; volatile ones as None."""
    members = json.loads(peer.seen[0][5:], object_pairs_hook=list)
    leave = INFO_MISSING.keys() | INFO_EXTRA.keys()
    return [(name, None if name in VOLATILE else value) for name, value in members if name not in leave]


@pytest.mark.parametrize(("block", "config"), SETTINGS.values(), ids=SETTINGS)
def test_info_has_the_fields_of_the_reference_in_their_order(
    launch: Launch, fake: Fake, block: str, config: str
) -> None:
    config = "server_name: S\n" + config
    tested = fake.greet(launch_routed(launch, cluster=block, config=config))
    expected = fake.greet(launch_routed(launch, cluster=block, config=config, kind=REFERENCE))
    assert fields(tested) == fields(expected)


def address(pair: tuple[str, int]) -> str:
    return f"{pair[0]}:{pair[1]}"


def test_info_names_the_ports_for_routes_and_for_clients(server: Server, fake: Fake) -> None:
    peer = fake.greet(server)
    assert re.fullmatch(rb"INFO \{[^\r\n]*\} \r\n", peer.seen[0])
    assert f"{peer.info['host']}:{peer.info['port']}" == address(peer.sock.getpeername())
    assert peer.info["connect_urls"] == [address(server.address)]
    assert peer.info["cluster"] == "C"
    with Connection(server.address) as client:
        assert client.info["server_id"] == peer.info["server_id"]
        assert "connect_urls" not in client.info


def test_the_nonce_is_new_each_time(server: Server, fake: Fake) -> None:
    assert fake.greet(server).info["nonce"] != fake.greet(server).info["nonce"]


def test_a_generated_cluster_name(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch, cluster="name: ''")
    info = fake.greet(server).info
    assert re.fullmatch("[0-9A-Za-z]{22}", info["cluster"])
    assert info["cluster_dynamic"] is True
    server.wait_log(rf"\[INF\] Cluster name is {info['cluster']}\n")
    server.wait_log(r"\[WRN\] Cluster name was dynamically generated, consider setting one\n")


def test_the_start_is_logged(server: Server) -> None:
    server.wait_log(
        r"\[INF\] Cluster name is C\n(.*\n)*.*\[INF\] Listening for route connections on 127.0.0.1:"
    )


def closed(reason: str) -> str:
    return f"INF Router connection closed: {reason}"


def rejected(name: str) -> tuple[bytes, list[str]]:
    """The answer to another cluster's name, and the log."""
    text = f'Rejecting connection, cluster name "{name}" does not match "C"'
    log = [CREATED, f"ERR {text}", closed("Cluster Name Conflict"), f"ERR {CONFLICT}"]
    return f"-ERR '{text}'\r\n".encode(), log


RESERVED = 'Rejecting connection, cluster name "_" is reserved'
UNAUTHENTICATED = VIOLATION, [CREATED, "ERR authentication error", closed("Authentication Failure")]
NO_JSON = b"", [CREATED, "ERR unexpected end of JSON input", closed("Protocol Violation")]

Send = Callable[[Fake], bytes]
REFUSED: dict[str, tuple[Send, tuple[bytes, list[str]]]] = {
    "the name of no cluster": (
        lambda fake: fake.connect(cluster="_"),
        (
            f"-ERR '{RESERVED}'\r\n".encode(),
            [CREATED, f"ERR {RESERVED}", closed("Cluster Name Conflict"), "ERR cluster name is reserved"],
        ),
    ),
    "INFO before CONNECT": (lambda fake: fake.info(), UNAUTHENTICATED),
    "PING before CONNECT": (lambda fake: b"PING\r\n", UNAUTHENTICATED),
    "SUB before CONNECT": (lambda fake: b"SUB foo 1\r\n", UNAUTHENTICATED),
    "RS+ before CONNECT": (lambda fake: b"RS+ $G foo\r\n", UNAUTHENTICATED),
    "RMSG before CONNECT": (lambda fake: b"RMSG $G foo 0\r\n\r\n", UNAUTHENTICATED),
    "client": (
        lambda fake: fake.connect(lang="go"),
        (
            b"-ERR 'attempted to connect to route port'\r\n",
            [CREATED, closed("Incorrect Port"), *["ERR attempted to connect to route port"] * 2],
        ),
    ),
    "gateway": (
        lambda fake: fake.connect(gateway="G"),
        (
            b"-ERR 'Rejecting connection from gateway \"G\" on the Route port'\r\n",
            [
                CREATED,
                'ERR Rejecting connection from gateway "G" on the Route port',
                closed("Wrong Gateway"),
                "ERR wrong gateway",
            ],
        ),
    ),
    "other cluster": (lambda fake: fake.connect(cluster="D"), rejected("D")),
    "other generated cluster": (
        lambda fake: fake.connect(cluster="Z", cluster_dynamic=True),
        rejected("Z"),
    ),
    "no cluster": (lambda fake: fake.connect(cluster=None), rejected("")),
    "client without lang": (lambda fake: b'CONNECT {"verbose":false}\r\n', rejected("")),
    "no JSON in CONNECT": (lambda fake: b"CONNECT\r\n", NO_JSON),
    "half a CONNECT": (lambda fake: b"CONNECT {\r\n", NO_JSON),
    "half an INFO": (lambda fake: fake.connect() + b"INFO {\r\n", NO_JSON),
    "other cluster in INFO": (
        lambda fake: fake.connect() + fake.info(cluster="D"),
        (b"", [CREATED, closed("Cluster Name Conflict")]),
    ),
    "name of this server": (
        lambda fake: fake.connect() + fake.info(server_name="S"),
        (
            b"",
            [CREATED, 'ERR Remote server has a duplicate name: "S"', closed("Duplicate Server Name")],
        ),
    ),
}


@pytest.mark.parametrize(("send", "refusal"), params(REFUSED))
def test_refused(server: Server, fake: Fake, send: Send, refusal: tuple[bytes, list[str]]) -> None:
    peer = fake.greet(server)
    peer.send(send(fake))
    answer, log = refusal
    assert b"".join(peer.rest()) == answer
    assert logged(server, peer, log) == log


def logged(server: Server, peer: RoutePeer, lines: list[str]) -> list[str]:
    """Wait for each of the lines, and return those logged, the expected ones in the order expected."""
    for line in lines:
        peer.wait_logged(server, line)
    found = peer.logged(server)
    return lines if sorted(found) == sorted(lines) else found


def invalid(text: str, fake: Fake, reason: str = "Protocol Violation") -> tuple[bytes, list[str]]:
    """The refusal of an INFO that was understood, and the log."""
    return f"-ERR '{text}'\r\n".encode(), [
        CREATED,
        f"ERR {text}",
        f"{closed(reason)} - Remote: {fake.name}",
        f'DBG Detected duplicate remote route "{fake.id}"',
    ]


INVALID: dict[str, tuple[dict[str, Any], str, str]] = {
    "index beyond both pools": (
        {"route_pool_size": 3, "route_pool_idx": 7},
        "Invalid route pool index: 7 - pool size is 3",
        "Protocol Violation",
    ),
    "negative index": (
        {"route_pool_size": 2, "route_pool_idx": -1},
        "Invalid route pool index: -1 - pool size is 2",
        "Protocol Violation",
    ),
    "account that is not pinned": (
        {"route_pool_size": 3, "route_account": "$G"},
        'No route for account "$G"',
        "Protocol Violation",
    ),
    "pinned account without a pool": (
        {"route_account": "$SYS"},
        'Not possible to have a dedicated route for account "$SYS" between those servers',
        "Protocol Violation",
    ),
    "unknown account": (
        {"route_pool_size": 3, "route_account": "NONE"},
        'Unable to lookup account "NONE": account missing',
        "Missing Account",
    ),
}


@pytest.mark.parametrize(("info", "text", "reason"), params(INVALID))
def test_invalid_info(server: Server, fake: Fake, info: dict[str, Any], text: str, reason: str) -> None:
    peer = fake.greet(server)
    peer.send(fake.connect() + fake.info(**info))
    answer, log = invalid(text, fake, reason)
    assert b"".join(peer.rest()) == answer
    assert logged(server, peer, log) == log


@pytest.mark.parametrize("block", ["pool_size: -1"])
def test_a_pool_meets_a_server_without_one(launch: Launch, fake: Fake, block: str) -> None:
    """The connections of the pool are one after the other the only one; the first stays."""
    server = launch_routed(launch, "-D", cluster=block)
    assert "route_pool_size" not in fake.greet(server).info
    first = fake.dial(server, route_pool_size=3)
    second = fake.greet(server)
    second.send(fake.connect() + fake.info(route_pool_size=3, route_pool_idx=1))
    assert second.rest() == []
    assert [route["remote_name"] for route in routes(server)] == [fake.name]
    first.tell(b"RS+", GLOBAL, b"foo")


ACCEPTED: dict[str, dict[str, Any]] = {
    "no pool": {},
    "no pool, with an index": {"route_pool_idx": 2},
    "larger pool": {"route_pool_size": 5, "route_pool_idx": 4},
    "smaller pool, index in ours": {"route_pool_size": 1, "route_pool_idx": 2},
    "no cluster": {"cluster": None},
    "no compression": {"compression": "off"},
    "compression, which we have not": {"compression": "s2_fast"},
    "unknown compression": {"compression": "s2_nonsense"},
    "old": {"proto": None, "version": "2.9.25", "lnoc": None, "lnocu": None},
    "no address": {"host": None, "port": None},
    "gateway": {"gateway": "G"},
    "no id": {"server_id": None},
}


@pytest.mark.parametrize("info", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(server: Server, fake: Fake, info: dict[str, Any]) -> None:
    peer = fake.dial(server, **info)
    remote = "" if "server_id" in info else fake.id
    peer.wait_logged(server, f'DBG Registering remote route "{remote}"')
    assert peer.fence() == []
    assert "Router connection closed" not in "".join(peer.logged(server))


def test_pinned_connection_is_registered_for_its_account(server: Server, fake: Fake) -> None:
    peer = fake.pinned(server)
    peer.wait_logged(server, f'DBG Registering remote route "{fake.id}" for account "$SYS"')
    assert CREATED in peer.logged(server)


def test_pinned_account(launch: Launch, fake: Fake) -> None:
    accounts = "accounts { A { users: [ { user: a, password: p } ] } }"
    server = launch_routed(launch, "-D", cluster="accounts: [A]", config=accounts)
    for account in b"A", SYSTEM:
        peer = fake.pinned(server, account)
        peer.wait_logged(server, f'DBG Registering remote route "{fake.id}" for account "{account.decode()}"')
    assert sorted(route["account"] for route in routes(server)) == ["$SYS", "A"]


def routes(server: Server) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = monitor(server, "/routez")["routes"]
    return found


def test_a_route_to_itself_is_closed(server: Server, fake: Fake) -> None:
    peer = fake.greet(server)
    peer.send(fake.connect() + fake.info(server_id=peer.info["server_id"]))
    assert peer.rest() == []
    peer.wait_logged(server, closed("Duplicate Route"))


@pytest.mark.parametrize(
    "info", [{}, {"route_pool_size": 3}, {"route_pool_size": 3, "route_account": "$SYS"}]
)
def test_a_second_connection_in_the_same_place_is_closed(
    server: Server, fake: Fake, info: dict[str, Any]
) -> None:
    first = fake.dial(server, **info)
    second = fake.greet(server)
    second.send(fake.connect() + fake.info(**info))
    assert second.rest() == []
    second.wait_logged(server, f"{closed('Duplicate Route')} - Remote: {fake.name}")
    second.wait_logged(server, f'DBG Detected duplicate remote route "{fake.id}"')
    first.fence()


def test_two_servers_with_one_name_are_both_accepted(server: Server, fake: Fake) -> None:
    with Fake(fake.name) as other:
        fake.dial(server), other.dial(server)
        assert {fake.id, other.id} <= {route["remote_id"] for route in routes(server)}


def test_a_second_info_is_an_update(server: Server, fake: Fake) -> None:
    peer = fake.pooled(server)
    peer.send(fake.info(route_pool_size=3) + fake.info(ldm=True))
    assert peer.fence() == []


def test_a_second_connect_is_checked_again(server: Server, fake: Fake) -> None:
    peer = fake.pooled(server)
    peer.send(fake.connect())
    assert peer.fence() == []
    peer.send(fake.connect(cluster="D"))
    assert b"".join(peer.rest()) == rejected("D")[0]
    peer.wait_logged(server, f"{closed('Cluster Name Conflict')} - Remote: {fake.name}")


def test_verbose_is_obeyed(server: Server, fake: Fake) -> None:
    peer = fake.dial(server, connect={"verbose": True}, route_pool_size=3)
    peer.send(b"RS+ $G foo\r\nRS- $G foo\r\n")
    assert peer.fence() == [b"+OK\r\n", b"+OK\r\n"]


LOGINS: dict[str, tuple[dict[str, Any], str]] = {
    "wrong password": ({"user": "ru", "pass": "no"}, ' - User "ru"'),
    "wrong user": ({"user": "no", "pass": "rp"}, ' - User "no"'),
    "nothing": ({}, ""),
    "no password": ({"user": "ru"}, ' - User "ru"'),
}


@pytest.mark.parametrize(("login", "named"), params(LOGINS))
def test_wrong_login(guarded: Server, fake: Fake, login: dict[str, Any], named: str) -> None:
    peer = fake.greet(guarded)
    assert peer.info["auth_required"] is True
    peer.send(fake.connect(**login) + fake.info())
    assert b"".join(peer.rest()) == VIOLATION
    log = [CREATED, f"ERR authentication error{named}", closed("Authentication Failure")]
    assert logged(guarded, peer, log) == log


def test_right_login(guarded: Server, fake: Fake) -> None:
    peer = fake.dial(guarded, connect={"user": "ru", **PASSWORD})
    peer.wait_logged(guarded, f'DBG Registering remote route "{fake.id}"')


def test_silence_where_a_login_is_required(guarded: Server, fake: Fake) -> None:
    peer = fake.greet(guarded)
    assert peer.rest() == [b"-ERR 'Authentication Timeout'\r\n"]
    log = [CREATED, "DBG Authentication Timeout", closed("Authentication Timeout")]
    assert logged(guarded, peer, log) == log


def test_no_info_after_the_login_is_no_silence(guarded: Server, fake: Fake) -> None:
    """The time to log in is over after CONNECT: a silent peer that came later has been closed meanwhile."""
    peer, later = fake.greet(guarded), fake.greet(guarded)
    peer.send(fake.connect(user="ru", **PASSWORD))
    assert later.rest()
    assert peer.fence() == []


def test_the_peer_leaves(server: Server, fake: Fake) -> None:
    peer = fake.pooled(server)
    peer.tell(b"RS+", GLOBAL, b"foo", b"bar q 2")
    peer.close()
    peer.wait_logged(server, f"{closed('Client Closed')} - Remote: {fake.name}")
    until(lambda: fake.id not in [route["remote_id"] for route in routes(server)])


def test_the_peer_leaves_before_it_has_a_name(server: Server, fake: Fake) -> None:
    peer = fake.greet(server)
    peer.close()
    peer.wait_logged(server, closed("Client Closed"))


def test_an_error_of_the_peer_closes(server: Server, fake: Fake) -> None:
    peer = fake.pooled(server)
    peer.send(b"-ERR 'it went wrong'\r\n")
    assert peer.rest() == []
    peer.wait_logged(server, "ERR Route Error 'it went wrong'")
    peer.wait_logged(server, f"{closed('Parse Error')} - Remote: {fake.name}")


def test_the_server_leaves(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch, config="server_name: S")
    peer = fake.pooled(server)
    system = fake.pinned(server)
    system.tell(b"RS+", SYSTEM, b"$SYS.SERVER.*.SHUTDOWN")
    server.stop()
    assert peer.rest() == []
    said = [op for op in system.rest() if op.startswith(b"RMSG ")]
    assert said[-1].startswith(b"RMSG $SYS.SERVER.%b.SHUTDOWN " % peer.info["server_id"].encode())


def secured(launch: Launch, certs: Certificates) -> Server:
    block = f"tls {{ {certs.server.tls_block}, ca_file: '{certs.ca.cert_file}' }}"
    return launch_routed(launch, "-D", cluster=block)


def test_tls(launch: Launch, fake: Fake, certs: Certificates) -> None:
    """INFO is encrypted, too; both sides have a certificate."""
    server = secured(launch, certs)
    peer = fake.greet(server, client_context(certs, certs.client))
    assert (peer.info["tls_required"], peer.info["tls_verify"]) == (True, True)
    peer.send(fake.connect(tls_required=True) + fake.info(route_pool_size=3))
    peer.fence()
    peer.wait_logged(server, f'DBG Registering remote route "{fake.id}"')


def test_tls_without_a_certificate(launch: Launch, fake: Fake, certs: Certificates) -> None:
    server = secured(launch, certs)
    with pytest.raises(OSError):
        fake.greet(server, client_context(certs))
    server.wait_log(closed("TLS Handshake Failure").partition(" ")[2])
