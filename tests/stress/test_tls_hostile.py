"""A hostile or unlucky TLS client does no harm to others."""

from __future__ import annotations

import gc
import hashlib
import json
import random
import socket
import ssl
import struct
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from support.certs import Certificate, Certificates
from support.tlswire import (
    PLAIN_CONNECT,
    TLS_1_2,
    TLS_1_3,
    TLSConnection,
    client_context,
    connect_tls,
    outcome,
)
from support.wire import Connection

from gnats import Options, Server
from gnats.log.logger import Logger
from gnats.options.values.tls import TLSOptions
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(120)

VERSIONS = pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3], ids=["1.2", "1.3"])
HOST = "127.0.0.1"


def tls_options(certs: Certificates, cert: Certificate | None = None, **more: object) -> TLSOptions:
    cert = cert or certs.server
    files = {"cert_file": cert.cert_file, "key_file": cert.key_file, "ca_file": certs.ca.cert_file}
    return TLSOptions(**{name: str(path) for name, path in files.items()} | more)  # type: ignore[arg-type]


@pytest.fixture
def server(io_threads: int, certs: Certificates) -> Iterator[ServerThread]:
    with ServerThread(io_threads=io_threads, tls=tls_options(certs, timeout=30.0)) as running:
        yield running


@pytest.fixture
def verifier(io_threads: int, certs: Certificates) -> Iterator[ServerThread]:
    with ServerThread(io_threads=io_threads, tls=tls_options(certs, verify=True)) as running:
        yield running


def connect(server: ServerThread, context: ssl.SSLContext, **more: object) -> TLSConnection:
    """Connect over TLS; return the connection after its first PONG."""
    return connect_tls((HOST, server.port), context, **more)


def reset(connection: Connection) -> None:
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class Handshake:
    """The client's side of a handshake in memory; the test sends its bytes as it likes."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.session = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def step(self, received: bytes = b"") -> tuple[bool, bytes]:
        """Handle received bytes; return (done, bytes to send)."""
        self.incoming.write(received)
        try:
            self.session.do_handshake()
        except ssl.SSLWantReadError:
            return False, self.outgoing.read()
        return True, self.outgoing.read()


def test_who_leaves_anywhere_in_a_handshake_hurts_nobody(server: ServerThread, certs: Certificates) -> None:
    for version in (TLS_1_2, TLS_1_3):
        context = client_context(certs, version=version)
        witness = connect(server, context)
        for cut in range(0, 500, 23):
            for flight in (1, 2):
                connection = Connection((HOST, server.port))
                handshake = Handshake(context)
                _, sent = handshake.step()
                if flight == 2:
                    connection.send(sent)
                    _, sent = handshake.step(connection.sock.recv(65536))
                connection.send(sent[:cut])
                reset(connection) if cut % 2 else connection.close()
            assert witness.fence() == []
        witness.close()


def test_hellos_with_a_few_bytes_changed_hurt_nobody(server: ServerThread, certs: Certificates) -> None:
    dice = random.Random(4222)
    context = client_context(certs)
    witness = connect(server, context)
    for _ in range(300):
        _, hello = Handshake(context).step()
        changed = bytearray(hello)
        for _ in range(dice.randrange(1, 6)):
            changed[dice.randrange(5, len(changed))] = dice.randrange(256)
        with Connection((HOST, server.port)) as connection:
            connection.send(bytes(changed) + dice.randbytes(dice.randrange(50)))
            connection.sock.shutdown(socket.SHUT_WR)
            try:
                connection.rest()
            except ConnectionResetError:
                continue
    assert witness.fence() == []
    witness.close()


@VERSIONS
def test_records_that_do_not_decrypt_end_their_connection_only(
    server: ServerThread, certs: Certificates, version: ssl.TLSVersion
) -> None:
    context = client_context(certs, version=version)
    witness = connect(server, context)
    for sent in (
        b"\x17\x03\x03\x00\x20" + bytes(32),
        b"\x17\x03\x03\xff\xff" + bytes(1000),
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x80" * 500,
    ):
        bad = connect(server, context)
        raw = socket.socket(fileno=bad.sock.detach())
        raw.settimeout(30)
        with raw:
            raw.sendall(sent)
            while True:
                try:
                    if not raw.recv(65536):
                        break
                except ConnectionResetError:
                    break
        assert witness.fence() == []
    witness.close()


def test_handshakes_under_way_end_as_they_began_when_certificates_change(
    server: ServerThread, certs: Certificates
) -> None:
    other = certs.make("replacement of hostile", issuer=certs.ca)
    context = client_context(certs)
    with ExitStack() as opened:
        halves = []
        for number in range(20):
            connection = opened.enter_context(Connection((HOST, server.port)))
            handshake = Handshake(context)
            _, hello = handshake.step()
            connection.send(hello[:100] if number % 2 else hello)
            halves.append((connection, handshake, hello[100:] if number % 2 else b""))
        for number in range(10):
            new = Options(tls=tls_options(certs, (certs.server, other)[number % 2]))
            server.call(partial(Server.replace_tls, opts=new))
        gc.collect()
        for connection, handshake, rest in halves:
            connection.send(rest)
            done = False
            while not done:
                received = connection.sock.recv(65536)
                assert received, "the server has closed the connection"
                done, sent = handshake.step(received)
                connection.send(sent)
            handshake.session.write(PLAIN_CONNECT + b"PING\r\n")
            connection.send(handshake.outgoing.read())
            answer = b""
            while not answer:
                try:
                    answer = handshake.session.read(100)
                except ssl.SSLWantReadError:
                    handshake.incoming.write(connection.sock.recv(65536))
            assert answer == b"PONG\r\n"
            assert handshake.session.getpeercert(binary_form=True) == certs.server.der


STRANGE_NAMES: dict[str, x509.NameAttribute[Any]] = {
    "a long number": x509.NameAttribute(x509.ObjectIdentifier("1.3." + ".".join(["127"] * 60)), "x"),
    "no text": x509.NameAttribute(NameOID.X500_UNIQUE_IDENTIFIER, b"\x00\xff", _ASN1Type.BitString),
}


@pytest.mark.parametrize("name", STRANGE_NAMES)
def test_a_strange_certificate_is_refused_like_others(
    io_threads: int, certs: Certificates, tmp_path: Path, name: str
) -> None:
    lines: list[bytes] = []
    log = Logger(lines.append)
    strange = Certificates(tmp_path).make("strange", subject=x509.Name([STRANGE_NAMES[name]]))
    with ServerThread(io_threads=io_threads, log=log, tls=tls_options(certs, verify=True)) as server:
        address = HOST, server.port
        told = outcome(address, client_context(certs, strange), ping=False)
        assert told == "TLSV1_ALERT_UNKNOWN_CA"
        assert outcome(address, client_context(certs, certs.client)) == "PONG"
    assert f"SHA-256: {hashlib.sha256(strange.der).hexdigest()}".encode() in b"".join(lines)


def test_failed_handshakes_do_not_disturb_https(io_threads: int, certs: Certificates) -> None:
    """Clients and HTTPS share OpenSSL's queue of errors, which is one a thread."""
    context = client_context(certs)
    with ServerThread(io_threads=io_threads, tls=tls_options(certs), https_port=-1) as server:
        port = server.monitor_port
        for _ in range(10):
            with Connection((HOST, server.port)) as bad:
                bad.send(b"GET / HTTP/1.1\r\n\r\n")
                assert bad.rest() == b""
            with urllib.request.urlopen(f"https://localhost:{port}/varz", context=context) as page:
                assert json.load(page)["tls_required"]


def test_a_slow_reader_gets_every_byte_in_order(io_threads: int, certs: Certificates) -> None:
    """The socket takes parts of records while connections of this and of another poller append."""
    context = client_context(certs)
    count, size = 150, 20_000
    with ExitStack() as opened:
        server = opened.enter_context(
            ServerThread(io_threads=io_threads, tls=tls_options(certs), write_deadline=100.0)
        )
        reader = opened.enter_context(connect(server, context))
        reader.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        reader.send(b"SUB slow.* 1\r\n")
        assert reader.fence() == []
        writers = [opened.enter_context(connect(server, context)) for _ in range(3)]
        for number in range(count):
            for index, writer in enumerate(writers):
                body = b"%05d" % number + bytes([index]) * (size + 97 * number % 1000)
                writer.send(b"PUB slow.%d %d\r\n%b\r\n" % (index, len(body), body))
        seen = [0] * len(writers)
        for _ in range(count * len(writers)):
            head, _, body = reader.read_op().partition(b"\r\n")
            index = int(head.split()[1].removeprefix(b"slow."))
            assert body[:5] == b"%05d" % seen[index]
            assert set(body[5:-2]) == {index}
            seen[index] += 1
        assert seen == [count] * len(writers)


@VERSIONS
def test_what_follows_a_goodbye_does_not_count(
    server: ServerThread, certs: Certificates, version: ssl.TLSVersion
) -> None:
    context = client_context(certs, version=version)
    with connect(server, context) as listener:
        listener.send(b"SUB after 1\r\n")
        assert listener.fence() == []
        with Connection((HOST, server.port)) as connection:
            handshake = Handshake(context)
            done, sent = handshake.step()
            while not done:
                connection.send(sent)
                done, sent = handshake.step(connection.sock.recv(65536))
            connection.send(sent)
            handshake.session.write(PLAIN_CONNECT + b"PUB after 2\r\nok\r\n")
            before = handshake.outgoing.read()
            handshake.session.write(b"PUB after 2\r\nno\r\n")
            after = handshake.outgoing.read()
            with pytest.raises(ssl.SSLWantReadError):
                handshake.session.unwrap()
            goodbye = handshake.outgoing.read()
            connection.send(before + goodbye + after)
            connection.rest()
        assert listener.read_op() == b"MSG after 1 2\r\nok\r\n"
        assert listener.fence() == []


@pytest.mark.parametrize("piece", [1, 2, 5])
def test_the_first_bytes_may_come_one_at_a_time(io_threads: int, certs: Certificates, piece: int) -> None:
    context = client_context(certs)
    for first, mixed in ((0.05, False), (0.0, True), (0.05, True)):
        options = tls_options(certs, handshake_first=first > 0, handshake_first_fallback=first)
        with ServerThread(io_threads=io_threads, tls=options, allow_non_tls=mixed) as server:
            with connect(server, context) as witness, Connection((HOST, server.port)) as connection:
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                handshake = Handshake(context)
                done, sent = handshake.step()
                for at in range(0, len(sent), piece):
                    connection.send(sent[at : at + piece])
                    if at < 20:
                        assert witness.fence() == []
                while not done:
                    done, sent = handshake.step(connection.sock.recv(65536))
                    connection.send(sent)
            if mixed:
                with connect(server, context) as witness, Connection((HOST, server.port)) as connection:
                    for byte in PLAIN_CONNECT + b"PING\r\n":
                        connection.send(bytes([byte]))
                    connection.read_until(b"PONG\r\n")


def test_errors_arrive_before_the_end(io_threads: int, certs: Certificates) -> None:
    context = client_context(certs)
    with ServerThread(
        io_threads=io_threads, tls=tls_options(certs), max_payload=1000, max_control_line=500
    ) as server:
        for sent, text in (
            (b"PUB a 1001\r\n" + bytes(20_000), b"-ERR 'Maximum Payload Violation'\r\n"),
            (b"SUB " + b"a" * 20_000, b"-ERR 'maximum control line exceeded'\r\n"),
        ):
            with connect(server, context) as connection:
                connection.send(b"SUB self 1\r\n" + b"PUB self 900\r\n" + bytes(900) + b"\r\n")
                connection.send(sent)
                assert connection.rest().endswith(text)


def test_a_stop_with_connections_in_every_state(io_threads: int, certs: Certificates) -> None:
    context = client_context(certs)
    _, hello = Handshake(context).step()
    with ExitStack() as opened:
        with ServerThread(
            io_threads=io_threads, tls=tls_options(certs, timeout=60.0), allow_non_tls=True
        ) as server:
            for cut in (0, 1, 5, 100, len(hello)):
                half = opened.enter_context(Connection((HOST, server.port)))
                half.send(hello[:cut])
            slow = opened.enter_context(connect(server, context))
            slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.send(b"SUB x 1\r\n")
            assert slow.fence() == []
            writer = opened.enter_context(connect(server, context))
            for _ in range(10):
                writer.send(b"PUB x 900000\r\n" + bytes(900_000) + b"\r\n")
            assert writer.fence() == []
            port = server.port
        with pytest.raises(ConnectionError):
            Connection((HOST, port))
