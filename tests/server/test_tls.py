"""TLS of a server in this process: data about its clients, and certificates that change."""

import asyncio
import ssl
from pathlib import Path

import pytest
from support.certs import Certificate, Certificates
from support.tlswire import PLAIN_CONNECT, TLS_1_2, TLS_1_3, TLSConnection, client_context, connect_tls

from gnats import Options, Server
from gnats.errors import OptionError
from gnats.options.values.tls import TLSOptions

from .conftest import Start
from .peer import Log

pytestmark = pytest.mark.timeout(120)


def options(certs: Certificates, cert: Certificate | None = None, **more: object) -> TLSOptions:
    cert = cert or certs.server
    files = {
        "cert_file": str(cert.cert_file),
        "key_file": str(cert.key_file),
        "ca_file": str(certs.ca.cert_file),
    }
    return TLSOptions(**files | more)  # type: ignore[arg-type]


async def connect(server: Server, context: ssl.SSLContext, *, first: bool = False) -> TLSConnection:
    """Connect over TLS; return the connection after its first PONG."""
    return await asyncio.to_thread(connect_tls, ("127.0.0.1", server.port), context, first=first)


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3], ids=["1.2", "1.3"])
async def test_what_a_handshake_has_settled(
    start: Start, certs: Certificates, version: ssl.TLSVersion
) -> None:
    log = Log()
    server = await start(log, tls=options(certs, verify=True))
    connection = await connect(server, client_context(certs, certs.client, version=version))
    session = next(iter(server.clients.values()))
    expected = {
        "version": "1.2" if version is TLS_1_2 else "1.3",
        "cipher_suite": (
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" if version is TLS_1_2 else "TLS_AES_128_GCM_SHA256"
        ),
        "server_name": "localhost",
        "first": False,
        "verified": True,
    }
    info = dict(session.tls_info() or {})
    shown = info.pop("peer_certs")
    assert info == expected
    assert shown[0] == certs.client.der == session.peer_certificate()
    connection.close()
    await log.seen("Client connection closed: Client Closed")
    assert dict(session.tls_info() or {}) == expected | {"peer_certs": shown}


async def test_a_client_without_a_certificate_has_none(start: Start, certs: Certificates) -> None:
    server = await start(tls=options(certs, handshake_first=True))
    connection = await connect(server, client_context(certs, certs.client), first=True)
    session = next(iter(server.clients.values()))
    info = session.tls_info()
    assert info is not None
    assert info["first"]
    assert not info["verified"]
    assert info["peer_certs"] == []
    assert session.peer_certificate() is None
    connection.close()


async def test_a_plain_client_has_settled_nothing(start: Start, certs: Certificates) -> None:
    server = await start(tls=options(certs), allow_non_tls=True)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    await reader.readline()
    writer.write(PLAIN_CONNECT + b"PING\r\n")
    assert await reader.readline() == b"PONG\r\n"
    assert next(iter(server.clients.values())).tls_info() is None
    writer.close()


async def test_certificates_are_replaced_while_clients_come_and_messages_flow(
    start: Start, certs: Certificates
) -> None:
    server = await start(tls=options(certs))
    context = client_context(certs)
    other = certs.make("replacement", issuer=certs.ca)
    old = await connect(server, context)
    old.send(b"SUB flow 1\r\n")
    served = []
    for number in range(40):
        cert = (certs.server, other)[number % 2]
        server.replace_tls(Options(tls=options(certs, cert)))
        new = await connect(server, context)
        served.append(new.sock.getpeercert(binary_form=True) == cert.der)
        new.send(b"PUB flow 2\r\n%02d\r\n" % number)
        new.close()
        assert await asyncio.to_thread(old.read_op) == b"MSG flow 1 2\r\n%02d\r\n" % number
    assert served == [True] * 40
    assert old.sock.getpeercert(binary_form=True) == certs.server.der
    old.close()


async def test_what_cannot_be_used_changes_nothing(start: Start, certs: Certificates, tmp_path: Path) -> None:
    server = await start(tls=options(certs))
    with pytest.raises(OptionError, match=r"nosuch\.pem: no such file or directory"):
        server.replace_tls(Options(tls=TLSOptions(cert_file="nosuch.pem", key_file="nosuch.pem")))
    connection = await connect(server, client_context(certs))
    assert connection.info["tls_required"]
    connection.close()


async def test_tls_is_switched_off_and_on(start: Start, certs: Certificates) -> None:
    server = await start(tls=options(certs))
    server.replace_tls(Options())
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    assert b"tls_" not in await reader.readline()
    writer.write(PLAIN_CONNECT + b"PING\r\n")
    assert await reader.readline() == b"PONG\r\n"
    writer.close()
    server.replace_tls(Options(tls=options(certs, verify=True)))
    connection = await connect(server, client_context(certs, certs.client))
    assert connection.info["tls_verify"]
    connection.close()
    assert server.client_url.startswith("tls://")


async def test_handshakes_in_great_number(start: Start, certs: Certificates) -> None:
    server = await start(tls=options(certs, cert=certs.rsa_server, timeout=60.0))
    context = client_context(certs)
    connections = await asyncio.gather(*(connect(server, context) for _ in range(60)))
    assert server.num_clients == 60
    for connection in connections:
        connection.close()


async def test_when_the_certificate_expires(start: Start, certs: Certificates) -> None:
    server = await start(tls=options(certs))
    assert server.tls is not None
    assert server.tls.not_after() == certs.server.cert.not_valid_after_utc
