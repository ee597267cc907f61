"""Gateways over TLS: handshakes, what is refused, and reloads of certificates and of pinned keys."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator

import pytest
from support.certs import Certificate, Certificates
from support.gatewaypeer import FakeGateway, GatewayListener, GatewayPeer, gateway_address, launch_gateway
from support.launch import Launch
from support.reload import reload, without_always
from support.servers import Server, reserve_port
from support.tlswire import client_context, outcome

from .cases import params

pytestmark = pytest.mark.timeout(60)


def tls(certs: Certificates, *more: str, node: Certificate | None = None) -> str:
    """Return a tls block of a gateway block."""
    entries = [(node or certs.node).tls_block, f'ca_file: "{certs.ca.cert_file}"', *more]
    return f"tls {{ {', '.join(entries)} }}"


def config(port: int, block: str, remotes: dict[str, str] | None = None) -> str:
    """Return the configuration of a server with the gateway G, to be changed by a reload."""
    others = json.dumps([{"name": name, "url": url} for name, url in (remotes or {}).items()])
    return f"gateway {{ name: G, listen: '127.0.0.1:{port}', gateways: {others}\n{block}\n}}"


@pytest.fixture
def fake() -> Iterator[FakeGateway]:
    with FakeGateway() as fake:
        yield fake


@pytest.fixture(scope="module")
def server(launch_shared: Launch, certs: Certificates) -> Server:
    return launch_gateway(launch_shared, "-D", block=tls(certs))


def test_a_good_handshake(server: Server, certs: Certificates, fake: FakeGateway) -> None:
    peer = fake.greet(server, client_context(certs, certs.node))
    assert (peer.info["tls_required"], peer.info["tls_verify"]) == (True, True)
    peer.send(fake.connect(tls_required=True) + fake.info())
    peer.fence()
    peer.wait_logged(server, 'INF Inbound gateway connection from "F"', begins=True)
    lines = peer.logged(server)
    assert lines[0] == "INF Processing inbound gateway connection"
    assert lines[1:3] == ["DBG Starting TLS gateway server handshake", "DBG TLS handshake complete"]


def test_a_peer_needs_a_good_certificate(server: Server, certs: Certificates) -> None:
    told = outcome(gateway_address(server), client_context(certs, None), ping=False, first=True)
    assert told == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    error = re.escape("TLS gateway handshake error: tls: client didn't provide a certificate")
    server.wait_log(rf"\[ERR\] 127\.0\.0\.1:\d+ - gid:\d+ - {error}\n")
    server.wait_log(r"\[INF\] .* - gid:\d+ - Gateway connection closed: TLS Handshake Failure\n")


MAPS = {
    "the user is a name": ("localhost", "verify_and_map: true", True),
    "another user": ("gu", "verify_and_map: true", False),
    "a host of the remotes": ("gu", "verify_cert_and_check_known_urls: true", True),
}


@pytest.mark.parametrize(("user", "more", "good"), params(MAPS))
def test_a_certificate_in_the_place_of_a_login(
    user: str, more: str, good: bool, launch: Launch, certs: Certificates, fake: FakeGateway
) -> None:
    """The certificate is for localhost, and so is the URL of a remote."""
    block = f"authorization {{ user: {user}, password: x }}\n{tls(certs, more)}"
    remotes = {"U": f"nats://localhost:{reserve_port(launch)}"}
    server = launch_gateway(launch, "-D", remotes=remotes, block=block)
    peer = fake.greet(server, client_context(certs, certs.node))
    peer.send(fake.connect(user="gu", **{"pass": "gp"}) + fake.info())
    if good:
        peer.fence()
        peer.wait_logged(server, "DBG Using SAN found in cert for auth [", begins=True)
    else:
        assert peer.rest() == [b"-ERR 'Authorization Violation'\r\n"]
        peer.wait_logged(server, 'DBG User in cert ["CN=node"], not found')


def test_a_server_that_dials_speaks_tls_at_once(
    launch: Launch, certs: Certificates, fake: FakeGateway
) -> None:
    """The certificate has no address, only the name that the URL has."""
    with GatewayListener() as listener:
        listener.tls = context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certs.named_node.cert_file, certs.named_node.key_file)
        context.load_verify_locations(certs.ca.cert_file)
        context.verify_mode = ssl.CERT_REQUIRED
        url = listener.url.replace("127.0.0.1", "localhost")
        server = launch_gateway(launch, "-D", remotes={"F": url}, block=tls(certs))
        assert fake.accept(listener).connect["tls_required"] is True
        server.wait_log(r"\[DBG\] .* - gid:\d+ - Starting TLS gateway client handshake\n")


def test_reload_of_a_certificate_and_of_pinned_keys(
    launch: Launch, certs: Certificates, fake: FakeGateway
) -> None:
    port = reserve_port(launch)
    server = launch("-D", "-m", "-1", config=config(port, tls(certs)))
    address = gateway_address(server)
    first = fake.greet(address, client_context(certs, certs.node))
    first.send(fake.connect(tls_required=True) + fake.info())
    first.fence()
    assert without_always(reload(server, config(port, tls(certs, node=certs.named_node)))) == []
    second = fake.greet(address, client_context(certs, certs.node))
    assert serial(second) != serial(first)
    first.fence()
    pins = f'pinned_certs: ["{"a" * 64}"]'
    assert without_always(reload(server, config(port, tls(certs, pins)))) == []
    server.wait_log(r"\[INF\] Disconnect 1 clients due to pinned certs reload\n")
    assert [op for op in first.rest() if not op.startswith((b"INFO ", b"RS+ "))] == []
    first.wait_logged(server, "INF Gateway connection closed: TLS Handshake Failure", begins=True)


def serial(peer: GatewayPeer) -> object:
    """Return the serial number of the certificate that the server has shown."""
    return peer.sock.getpeercert()["serialNumber"]  # type: ignore[attr-defined]
