"""Routes over TLS: what each side shows and verifies, and what it logs of a handshake that fails."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.certs import Certificate, Certificates
from support.clusters import launch_routed, routed
from support.launch import Launch
from support.monitor import monitor
from support.reload import reload, without_always
from support.routepeer import POOL, Fake, RouteListener, RoutePeer, route_address
from support.servers import TIMEOUT, Server, reserve_port
from support.tlswire import TLS_1_2, TLS_1_3, client_context, outcome
from support.wire import Closed

pytestmark = pytest.mark.timeout(60)

ALONE = "pool_size: -1"
"""Lines of the cluster block: a server has a single connection."""
CLOSED = "INF Router connection closed: TLS Handshake Failure"
VERIFY = "tls: failed to verify certificate: x509: "
NO_TLS = "tls: first record does not look like a TLS handshake"
INSECURE = (
    "TLS certificate chain and hostname of solicited routes will not be verified. DO NOT USE IN PRODUCTION!"
)
VERSIONS = pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3], ids=["1.2", "1.3"])


def tls(certs: Certificates, *more: str, node: Certificate | None = None) -> str:
    """Return a tls block of a cluster block."""
    entries = [(node or certs.node).tls_block, f'ca_file: "{certs.ca.cert_file}"', *more]
    return f"tls {{ {', '.join(entries)} }}"


def error(server: Server, text: str) -> None:
    """Wait for the error of a handshake, and for the close; `text` is how the error begins."""
    server.wait_log(rf"\[ERR\] 127\.0\.0\.1:\d+ - rid:\d+ - TLS route handshake error: {re.escape(text)}")
    server.wait_log(rf"rid:\d+ - {CLOSED.partition(' ')[2]}\n")


def answer(server: Server, sent: bytes) -> bytes:
    """Send bytes in clear text, and return what comes before the connection ends."""
    with socket.create_connection(route_address(server), TIMEOUT) as sock:
        sock.sendall(sent)
        try:
            return sock.recv(1 << 16)
        except ConnectionResetError:
            return b""


@pytest.fixture
def fake() -> Iterator[Fake]:
    with Fake() as fake:
        yield fake


# -- a server that is dialled ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(launch_shared: Launch, certs: Certificates) -> Server:
    return launch_routed(launch_shared, "-D", cluster=tls(certs))


@VERSIONS
def test_a_good_handshake_is_logged(
    server: Server, certs: Certificates, fake: Fake, version: ssl.TLSVersion
) -> None:
    peer = fake.greet(server, client_context(certs, certs.node, version=version))
    assert (peer.info["tls_required"], peer.info["tls_verify"]) == (True, True)
    peer.send(fake.connect(tls_required=True) + fake.info())
    peer.fence()
    peer.wait_logged(server, f'DBG Registering remote route "{fake.id}"')
    lines = peer.logged(server)
    assert lines[:2] == ["DBG Starting TLS route server handshake", "DBG TLS handshake complete"]
    name = "1.2" if version is TLS_1_2 else "1.3"
    assert lines[2].startswith(f"DBG TLS version {name}, cipher suite TLS_")
    assert lines[3] == "INF Route connection created"


REFUSED = {
    "none": ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "tls: client didn't provide a certificate\n"),
    "foreign_node": (
        "TLSV1_ALERT_UNKNOWN_CA",
        VERIFY + "certificate signed by unknown authority (CN=foreign node SHA-256: ",
    ),
    "expired_node": (
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        VERIFY + "certificate has expired or is not yet valid: current time ",
    ),
    "server_as_client": (
        "SSLV3_ALERT_BAD_CERTIFICATE",
        VERIFY + "certificate specifies an incompatible key usage (CN=server as client SHA-256: ",
    ),
}


@pytest.mark.parametrize("cert", REFUSED)
def test_a_server_that_dials_must_have_a_good_certificate(
    server: Server, certs: Certificates, cert: str
) -> None:
    alert, text = REFUSED[cert]
    context = client_context(certs, None if cert == "none" else getattr(certs, cert))
    told = outcome(route_address(server), context, ping=False, first=True)
    assert told in (alert, "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE" if cert == "server_as_client" else alert)
    error(server, text)


def test_clear_text_is_an_error(server: Server) -> None:
    """Unlike at the port of clients, which anyone may try."""
    assert answer(server, b"CONNECT {}\r\n") == b""
    error(server, NO_TLS)


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "half a hello"])
def test_a_slow_handshake_is_an_error(launch: Launch, certs: Certificates, begun: bytes) -> None:
    server = launch_routed(launch, "-D", cluster=tls(certs, "timeout: 0.3"))
    assert answer(server, begun) == b""
    # nats-server has two timers; either may fire first.
    timeout = r"TLS (handshake timeout|route handshake error: read tcp \S+: i/o timeout)"
    server.wait_log(rf"\[ERR\] 127\.0\.0\.1:\d+ - rid:\d+ - {timeout}\n")
    server.wait_log("Router connection closed: TLS Handshake Failure\n")


def test_only_pinned_keys_may_dial(launch: Launch, certs: Certificates, fake: Fake) -> None:
    other = certs.make("another node", issuer=certs.ca)
    server = launch_routed(launch, "-D", cluster=tls(certs, f'pinned_certs: ["{certs.node.pin}"]'))
    fake.greet(server, client_context(certs, certs.node))
    told = outcome(route_address(server), client_context(certs, other), ping=False, first=True)
    assert told in ("closed", "SSLZeroReturnError")
    server.wait_log(rf"\[DBG\] .* - Failed pinned cert test for key id: {other.pin}\n")
    error(server, "certificate not pinned\n")


def test_varz(server: Server, certs: Certificates) -> None:
    """The time for authorization includes that for a handshake."""
    cluster = monitor(server, "/varz")["cluster"]
    until = certs.node.cert.not_valid_after_utc.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert {key: value for key, value in cluster.items() if "tls" in key or key == "auth_timeout"} == {
        "auth_timeout": 3,
        "tls_timeout": 2,
        "tls_required": True,
        "tls_verify": True,
        "tls_cert_not_after": until,
    }


def test_a_login_is_asked_for_as_without_tls(launch: Launch, certs: Certificates, fake: Fake) -> None:
    block = "authorization { user: ru, password: rp }\n"
    server = launch_routed(launch, "-D", cluster=block + tls(certs))
    peer = fake.greet(server, client_context(certs, certs.node))
    peer.send(fake.connect(user="ru", **{"pass": "no"}))
    assert peer.rest() == [b"-ERR 'Authorization Violation'\r\n"]


def test_a_reload_reads_renewed_certificates(
    launch: Launch, certs: Certificates, fake: Fake, tmp_path: Path
) -> None:
    """New connections get them; the others stay."""
    first, renewed = (certs.make(name, issuer=certs.ca) for name in ("first node", "renewed node"))
    files = tmp_path / "node.pem", tmp_path / "node-key.pem"
    shutil.copy(first.cert_file, files[0])
    shutil.copy(first.key_file, files[1])
    node = Certificate(first.cert, first.key, *files)
    server = launch_routed(launch, "-D", cluster=tls(certs, node=node))
    context = client_context(certs, certs.node)
    old = fake.greet(server, context)
    assert old.sock.getpeercert(True) == first.der  # type: ignore[attr-defined]
    shutil.copy(renewed.cert_file, files[0])
    shutil.copy(renewed.key_file, files[1])
    server.process.send_signal(signal.SIGHUP)
    server.wait_log("Reloaded: cluster\n")
    server.wait_log("Reloaded server configuration")
    new = fake.greet(server, context)
    assert new.sock.getpeercert(True) == renewed.der  # type: ignore[attr-defined]
    old.send(fake.connect() + fake.info())
    old.fence()


def test_a_reload_closes_routes_without_a_pinned_key(launch: Launch, certs: Certificates) -> None:
    other = certs.make("another node", issuer=certs.ca)
    server = launch_routed(launch, "-D", cluster=tls(certs))
    with Fake() as one, Fake() as two:
        stays, goes = (
            fake.greet(server, client_context(certs, cert))
            for fake, cert in ((one, certs.node), (two, other))
        )
        for fake, peer in (one, stays), (two, goes):
            peer.send(fake.connect() + fake.info())
            peer.fence()
        block = tls(certs, f'pinned_certs: ["{certs.node.pin}"]')
        assert without_always(reload(server, routed(cluster=block))) == ["Reloaded: cluster"]
        assert not [op for op in goes.rest() if op.startswith(b"-ERR")]
        goes.wait_logged(server, f"{CLOSED} - Remote: {two.name}")
        server.wait_log("Disconnect 1 clients due to pinned certs reload\n")
        stays.fence()


def test_a_reload_switches_tls_on_and_off(launch: Launch, certs: Certificates, fake: Fake) -> None:
    """For new connections."""
    server = launch_routed(launch, "-D")
    peers = [fake.dial(server)]
    context = client_context(certs, certs.node)
    for block in tls(certs), "":
        reload(server, routed(cluster=block))
        peers.append(fake.greet(server, context if block else None))
        assert peers[-1].info.get("tls_required", False) is bool(block)
    peers[0].fence()


MAPS = {
    "the user is a name": ("authorization { user: localhost }", "verify_and_map: true", "SAN"),
    "the user is the subject": ('authorization { user: "CN=node" }', "verify_and_map: true", "subject"),
    "another user": ("authorization { user: ru, password: rp }", "verify_and_map: true", ""),
    "a host of the routes": (
        "routes: ['nats-route://localhost:1']",
        "verify_cert_and_check_known_urls: true",
        "SAN",
    ),
    "another host": ("routes: ['nats-route://10.1.2.3:1']", "verify_cert_and_check_known_urls: true", ""),
}


@pytest.mark.parametrize("block, more, found", MAPS.values(), ids=MAPS)
def test_a_certificate_in_the_place_of_a_login(
    launch: Launch, certs: Certificates, fake: Fake, block: str, more: str, found: str
) -> None:
    server = launch_routed(launch, "-D", cluster=f"{block}\n{tls(certs, more)}")
    peer = fake.greet(server, client_context(certs, certs.node))
    peer.send(fake.connect(user="ru", **{"pass": "rp"}) + fake.info())
    if found:
        peer.fence()
        peer.wait_logged(server, f'DBG Registering remote route "{fake.id}"')
        assert any(re.search(rf"DBG Using .*{found}.* for auth \[", line) for line in peer.logged(server))
    else:
        assert peer.rest() == [b"-ERR 'Authorization Violation'\r\n"]
        peer.wait_logged(server, 'DBG User in cert ["CN=node"], not found')


# -- a server that dials ---------------------------------------------------------------------------------


@pytest.fixture
def listener() -> Iterator[RouteListener]:
    with RouteListener() as listener:
        yield listener


class Stranger:
    """What accepts connections with a certificate; it keeps the names that were asked for in hellos."""

    def __init__(
        self,
        cert: Certificate,
        *,
        trusted: Certificate | None = None,
        version: ssl.TLSVersion | None = None,
    ) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(cert.cert_file, cert.key_file)
        if trusted:
            self.context.verify_mode = ssl.CERT_REQUIRED
            self.context.load_verify_locations(trusted.cert_file)
        if version:
            self.context.maximum_version = version
        self.asked: list[str | None] = []
        self.context.sni_callback = lambda sock, name, context: self.asked.append(name)

    def alert(self, listener: RouteListener) -> str:
        """Take a connection that the server ends during the handshake or after it; return the reason."""
        listener.tls = self.context
        try:
            listener.accept().close()
        except ssl.SSLError as refusal:
            return refusal.reason
        except (OSError, Closed) as cut:
            return type(cut).__name__
        return "accepted"


def dialling(launch: Launch, listener: RouteListener, block: str, host: str = "127.0.0.1") -> Server:
    """Start a server that has one route, to this listener, and a single connection to it."""
    routes = f"routes: ['nats-route://{host}:{listener.port}']"
    return launch_routed(launch, "-D", cluster=f"{routes}\n{ALONE}\n{block}")


@VERSIONS
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_both_sides_show_their_certificates(
    launch: Launch,
    listener: RouteListener,
    certs: Certificates,
    fake: Fake,
    host: str,
    version: ssl.TLSVersion,
) -> None:
    stranger = Stranger(certs.node, trusted=certs.ca, version=version)
    listener.tls = stranger.context
    server = dialling(launch, listener, tls(certs), host)
    peer = fake.accept(listener)
    assert peer.connect["tls_required"] is True
    assert stranger.asked == [None if host == "127.0.0.1" else host]
    assert peer.sock.getpeercert(True) == certs.node.der  # type: ignore[attr-defined]
    fake.answer(peer, size=0)
    lines = server.wait_log(r"rid:(\d+) - Registering remote route") and re.findall(
        r"\[(\w+)\] 127\.0\.0\.1:\d+ - rid:\d+ - (.*)", server.log
    )
    assert [" ".join(line) for line in lines[:5] if "cipher suite" not in line[1]] == [
        "DBG Starting TLS route client handshake",
        "DBG TLS handshake complete",
        "DBG Route connect msg sent",
        "INF Route connection created",
    ]


HOSTS = {
    "unknown authority": (
        "foreign_node",
        "localhost",
        VERIFY + "certificate signed by unknown authority (CN=foreign node SHA-256: ",
    ),
    "expired": (
        "expired_node",
        "localhost",
        VERIFY + "certificate has expired or is not yet valid: current time ",
    ),
    "a client's": (
        "client",
        "localhost",
        VERIFY + "certificate specifies an incompatible key usage (CN=client SHA-256: ",
    ),
    "another name": (
        "other_host",
        "localhost",
        VERIFY + "certificate is valid for a.example, *.b.example, not localhost (CN=other host SHA-256: ",
    ),
    "another address": (
        "other_host",
        "127.0.0.1",
        VERIFY + "certificate is valid for 10.0.0.1, ::1, not 127.0.0.1 (CN=other host SHA-256: ",
    ),
    "no address": (
        "named_node",
        "127.0.0.1",
        VERIFY + "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs (CN=named",
    ),
    "no name": (
        "numeric_host",
        "localhost",
        VERIFY + "certificate is not valid for any names, but wanted to match localhost (CN=numeric host ",
    ),
    "a name that is not an alternative one": (
        "bare_host",
        "localhost",
        VERIFY + "certificate relies on legacy Common Name field, use SANs instead (CN=localhost SHA-256: ",
    ),
}


def host_certificate(certs: Certificates, name: str) -> Certificate:
    if name == "other_host":
        return certs.make(
            "other host",
            issuer=certs.ca,
            names=("a.example", "*.b.example"),
            addresses=("10.0.0.1", "::1"),
        )
    if name == "numeric_host":
        return certs.make("numeric host", issuer=certs.ca, names=())
    if name == "bare_host":
        return certs.make("localhost", issuer=certs.ca, names=(), addresses=())
    found: Certificate = getattr(certs, name)
    return found


@pytest.mark.parametrize("cert, host, text", HOSTS.values(), ids=HOSTS)
def test_a_server_that_is_dialled_must_have_a_good_certificate(
    launch: Launch, listener: RouteListener, certs: Certificates, cert: str, host: str, text: str
) -> None:
    """The alert does not say why."""
    server = dialling(launch, listener, tls(certs), host)
    assert Stranger(host_certificate(certs, cert)).alert(listener) == "SSLV3_ALERT_BAD_CERTIFICATE"
    error(server, text)
    server.wait_log("Attempting reconnect for solicited route ")


def test_insecure(launch: Launch, listener: RouteListener, certs: Certificates, fake: Fake) -> None:
    """Servers that are dialled are not verified; those that dial are."""
    listener.tls = Stranger(certs.foreign_node, trusted=certs.ca).context
    server = dialling(launch, listener, tls(certs, "insecure: true"), "localhost")
    fake.accept(listener)
    server.wait_log(re.escape(f"[WRN] {INSECURE}"))
    context = client_context(certs, certs.foreign_node)
    assert outcome(route_address(server), context, ping=False, first=True) == "TLSV1_ALERT_UNKNOWN_CA"


def test_only_pinned_keys_are_dialled(launch: Launch, listener: RouteListener, certs: Certificates) -> None:
    block = tls(certs, f'pinned_certs: ["{certs.client.pin}"]')
    server = dialling(launch, listener, block)
    assert Stranger(certs.node).alert(listener) in ("Closed", "ConnectionResetError")
    server.wait_log(rf"\[DBG\] .* - Failed pinned cert test for key id: {certs.node.pin}\n")
    error(server, "certificate not pinned\n")


def test_a_server_that_refuses_us(launch: Launch, listener: RouteListener, certs: Certificates) -> None:
    server = dialling(launch, listener, tls(certs))
    stranger = Stranger(certs.node, trusted=certs.other_ca, version=TLS_1_2)
    assert stranger.alert(listener) == "CERTIFICATE_VERIFY_FAILED"
    error(server, "remote error: tls: unknown certificate authority\n")


def test_a_server_that_refuses_us_late(launch: Launch, listener: RouteListener, certs: Certificates) -> None:
    """With TLS 1.3 the handshake is over at our side by then."""
    server = dialling(launch, listener, tls(certs))
    stranger = Stranger(certs.node, trusted=certs.other_ca)
    assert stranger.alert(listener) == "CERTIFICATE_VERIFY_FAILED"
    server.wait_log("rid:[0-9]+ - Route connection created\n")
    server.wait_log("Router connection closed: (Read|Write|TLS Handshake) Error\n")  # what it notices first


def test_a_server_without_tls_is_dialled(
    launch: Launch, listener: RouteListener, certs: Certificates, fake: Fake
) -> None:
    server = dialling(launch, listener, tls(certs))
    peer = RoutePeer(listener.take_socket())
    peer.send(fake.info())
    error(server, NO_TLS)
    peer.close()


def test_a_server_that_leaves(launch: Launch, listener: RouteListener, certs: Certificates) -> None:
    server = dialling(launch, listener, tls(certs))
    sock = listener.take_socket()
    sock.recv(1 << 16)
    sock.close()
    error(server, "EOF\n")


def test_a_server_that_is_slow(launch: Launch, listener: RouteListener, certs: Certificates) -> None:
    server = dialling(launch, listener, tls(certs, "timeout: 0.3"))
    with listener.take_socket() as sock:
        while sock.recv(1 << 16):
            pass
    timeout = r"TLS (handshake timeout|route handshake error: read tcp \S+: i/o timeout)"
    server.wait_log(rf"\[ERR\] 127\.0\.0\.1:\d+ - rid:\d+ - {timeout}\n")
    server.wait_log("Router connection closed: TLS Handshake Failure\n")


# -- names for addresses ---------------------------------------------------------------------------------


def told(launch: Launch, certs: Certificates, stack: ExitStack, cert: Certificate) -> tuple[Server, Stranger]:
    """Have a server be told of another one by address, whose certificate is `cert`, and let it dial that.

    Its routes name a host, localhost.
    """
    first, second = (stack.enter_context(RouteListener()) for _ in range(2))
    known = stack.enter_context(Fake(port=first.port))
    other = stack.enter_context(Fake(port=second.port))
    stranger = Stranger(cert)
    first.tls, second.tls = Stranger(certs.named_node).context, stranger.context
    nobody = f"nats-route://127.0.0.1:{reserve_port(known)}"
    routes = json.dumps([nobody, f"nats-route://localhost:{first.port}"])
    server = launch_routed(launch, "-D", cluster=f"routes: {routes}\n{ALONE}\n{tls(certs)}")
    peer = known.answer(known.accept(first), size=0)
    peer.send(other.info(ip=f"nats-route://127.0.0.1:{second.port}/"))
    try:
        other.answer(other.accept(second), size=0)
    except ssl.SSLError:
        other.answer(other.accept(second), size=0)
    return server, stranger


def test_the_name_of_a_configured_route_is_for_addresses_too(launch: Launch, certs: Certificates) -> None:
    with ExitStack() as stack:
        _, stranger = told(launch, certs, stack, certs.named_node)
        assert stranger.asked == ["localhost"]


def test_a_name_that_is_refused_is_not_asked_for_again(launch: Launch, certs: Certificates) -> None:
    numeric = certs.make("numeric node", issuer=certs.ca, names=("other.example",))
    with ExitStack() as stack:
        server, stranger = told(launch, certs, stack, numeric)
        assert stranger.asked == ["localhost", None]
        error(server, VERIFY + "certificate is valid for other.example, not localhost (CN=numeric node SHA-")


def test_a_pool_over_tls(launch: Launch, listener: RouteListener, certs: Certificates) -> None:
    listener.tls = Stranger(certs.node, trusted=certs.ca).context
    routes = json.dumps([listener.url])
    launch_routed(launch, "-D", cluster=f"routes: {routes}\n{tls(certs)}")
    with Fake(port=listener.port) as fake:
        assert len(fake.serve(listener)) == POOL + 1
