"""TLS between clients and server: certificates, INFO, versions and ciphers, failures, alerts."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import nats
import pytest
from support.certs import Certificate, Certificates
from support.launch import Launch
from support.natspy import joined
from support.servers import TIMEOUT, Server
from support.tlswire import PLAIN_CONNECT, TLS_1_2, TLS_1_3, TLSConnection, client_context, outcome
from support.wire import PING, Closed, Connection

pytestmark = pytest.mark.timeout(120)

VERSIONS = pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3], ids=["1.2", "1.3"])
OPENSSL = shutil.which("openssl")


def tls(certs: Certificates, *more: str, server: Certificate | None = None, outside: str = "") -> str:
    """Return a configuration with a tls block: `more` are its further entries, `outside` text outside it."""
    return f"tls {{ {', '.join([(server or certs.server).tls_block, *more])} }}\n{outside}"


def verifying(certs: Certificates, *more: str) -> str:
    return tls(certs, f'ca_file: "{certs.ca.cert_file}", verify: true', *more)


@pytest.fixture(scope="module")
def server(launch_shared: Launch, certs: Certificates) -> Server:
    """A server that requires TLS."""
    return launch_shared("-D", config=tls(certs, 'timeout: "5s"'))


@pytest.fixture(scope="module")
def verifier(launch_shared: Launch, certs: Certificates) -> Server:
    """A server that requires client certificates."""
    return launch_shared("-D", config=verifying(certs))


@pytest.fixture(scope="module")
def mixed(launch_shared: Launch, certs: Certificates) -> Server:
    """A server that accepts clients with TLS and without."""
    return launch_shared("-D", config=tls(certs, outside="allow_non_tls: true"))


# -- INFO ------------------------------------------------------------------------------------------------


def tls_fields(info: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in info.items() if name.startswith("tls_")}


def test_info_asks_for_tls(server: Server) -> None:
    with Connection(server.address) as connection:
        assert tls_fields(connection.info) == {"tls_required": True}


def test_info_asks_for_a_certificate(verifier: Server) -> None:
    with Connection(verifier.address) as connection:
        assert tls_fields(connection.info) == {"tls_required": True, "tls_verify": True}


def test_info_offers_tls(mixed: Server) -> None:
    with Connection(mixed.address) as connection:
        assert tls_fields(connection.info) == {"tls_available": True}


def test_what_the_log_says_at_the_start(server: Server, mixed: Server) -> None:
    assert "TLS required for client connections" in server.log
    assert "TLS available for client connections" in mixed.log


# -- certificates ----------------------------------------------------------------------------------------

MATRIX = {
    "none": ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE"),
    "client": ("PONG", "PONG"),
    "untrusted_client": ("TLSV1_ALERT_UNKNOWN_CA", "TLSV1_ALERT_UNKNOWN_CA"),
    "impostors_client": ("TLSV1_ALERT_UNKNOWN_CA", "TLSV1_ALERT_UNKNOWN_CA"),
    "impostors_rsa_client": ("TLSV1_ALERT_UNKNOWN_CA", "TLSV1_ALERT_UNKNOWN_CA"),
    "expired_client": ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "SSLV3_ALERT_CERTIFICATE_EXPIRED"),
    "self_signed_client": ("TLSV1_ALERT_UNKNOWN_CA", "TLSV1_ALERT_UNKNOWN_CA"),
}
"""The alert that a verifying server sends for each certificate, with TLS 1.3 and with TLS 1.2."""


@VERSIONS
@pytest.mark.parametrize("cert", MATRIX)
def test_a_verifying_server_takes_only_good_certificates(
    verifier: Server, certs: Certificates, cert: str, version: ssl.TLSVersion
) -> None:
    shown = None if cert == "none" else getattr(certs, cert)
    context = client_context(certs, shown, version=version)
    told = MATRIX[cert][version is TLS_1_2]
    assert outcome(verifier.address, context, ping=told == "PONG") == told


@VERSIONS
def test_a_certificate_must_be_one_for_clients(
    verifier: Server, certs: Certificates, version: ssl.TLSVersion
) -> None:
    start = len(verifier.log)
    context = client_context(certs, certs.server_as_client, version=version)
    assert outcome(verifier.address, context, ping=False) in (
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",  # gnats's alert is more precise
    )
    verifier.wait_log("certificate specifies an incompatible key usage", start)


@VERSIONS
@pytest.mark.parametrize("cert", [None, "client", "untrusted_client", "expired_client"])
def test_a_server_that_does_not_verify_takes_every_client(
    server: Server, certs: Certificates, cert: str | None, version: ssl.TLSVersion
) -> None:
    context = client_context(certs, getattr(certs, cert) if cert else None, version=version)
    assert outcome(server.address, context) == "PONG"


LOGGED = {
    "none": r"\[ERR\] .* - TLS handshake error: tls: client didn't provide a certificate",
    "untrusted_client": (
        r"\[ERR\] .* - TLS handshake error: tls: failed to verify certificate: x509: certificate signed by "
        r"unknown authority.* \(CN=untrusted client SHA-256: [0-9a-f]{64}[;)]"
    ),
    "impostors_client": (
        r"\[ERR\] .* - TLS handshake error: tls: failed to verify certificate: x509: certificate signed by "
        r"unknown authority.* \(CN=client of an impostor SHA-256: [0-9a-f]{64}[;)]"
    ),
    "expired_client": (
        r"\[ERR\] .* - TLS handshake error: tls: failed to verify certificate: x509: certificate has expired "
        r"or is not yet valid: current time \S+Z is after \S+Z \(CN=expired client SHA-256: [0-9a-f]{64}[;)]"
    ),
}


@pytest.mark.parametrize("cert", LOGGED)
def test_a_refused_client_is_logged_with_what_it_has_shown(
    verifier: Server, certs: Certificates, cert: str
) -> None:
    start = len(verifier.log)
    outcome(verifier.address, client_context(certs, None if cert == "none" else getattr(certs, cert)))
    verifier.wait_log(LOGGED[cert], start)
    verifier.wait_log("Client connection closed: TLS Handshake Failure", start)


def test_an_intermediate_that_is_trusted_is_enough(launch: Launch, certs: Certificates) -> None:
    middle = certs.make("Intermediate", issuer=certs.other_ca, authority=True)
    client = certs.make("client of the intermediate", issuer=middle)
    server = launch(config=tls(certs, f'ca_file: "{middle.cert_file}", verify: true'))
    assert outcome(server.address, client_context(certs, client)) == "PONG"
    refused = client_context(certs, certs.client)
    assert outcome(server.address, refused, ping=False) == "TLSV1_ALERT_UNKNOWN_CA"


def test_only_pinned_keys_get_in(launch: Launch, certs: Certificates) -> None:
    other = certs.make("other client", issuer=certs.ca)
    server = launch("-D", config=verifying(certs, f'pinned_certs: ["{certs.client.pin.upper()}"]'))
    assert outcome(server.address, client_context(certs, certs.client)) == "PONG"
    assert outcome(server.address, client_context(certs, other), ping=False) in (
        "closed",
        "SSLZeroReturnError",
    )
    server.wait_log(f"Failed pinned cert test for key id: {other.pin}")
    server.wait_log(r"\[ERR\] .* - TLS handshake error: certificate not pinned")


def test_who_has_shown_no_certificate_has_no_pinned_key(launch: Launch, certs: Certificates) -> None:
    server = launch("-D", config=tls(certs, f'pinned_certs: ["{certs.client.pin}"]'))
    assert outcome(server.address, client_context(certs, certs.client), ping=False) in (
        "closed",
        "SSLZeroReturnError",
    )
    server.wait_log("Failed pinned cert test as client did not provide a certificate")


# -- versions, cipher suites, curves ---------------------------------------------------------------------


def test_the_version_and_the_suite_are_logged(server: Server, certs: Certificates) -> None:
    for version, text in (TLS_1_2, "1.2"), (TLS_1_3, "1.3"):
        start = len(server.log)
        context = client_context(certs, version=version)
        with TLSConnection(server.address, context) as connection:
            suite = connection.sock.cipher()[0]
        assert server.wait_log(r"Starting TLS client connection handshake", start)
        assert server.wait_log(r"TLS handshake complete", start)
        found = server.wait_log(r"TLS version (\S+), cipher suite (\S+)", start)
        assert found[1] == text
        assert found[2].replace("_WITH_", "_")[4:] == suite.replace("-", "_").removeprefix("TLS_").replace(
            "AES128_", "AES_128_"
        )


@VERSIONS
def test_aes_128_is_chosen_whatever_the_client_prefers(
    server: Server, certs: Certificates, version: ssl.TLSVersion
) -> None:
    with TLSConnection(server.address, client_context(certs, version=version)) as connection:
        assert connection.sock.cipher()[2] == 128


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_tls_1_1_is_refused(server: Server, certs: Certificates) -> None:
    context = client_context(certs, version=ssl.TLSVersion.TLSv1_1, ciphers="ALL:@SECLEVEL=0")
    assert outcome(server.address, context) == "TLSV1_ALERT_PROTOCOL_VERSION"


def test_min_version(launch: Launch, certs: Certificates) -> None:
    server = launch(config=tls(certs, 'min_version: "1.3"'))
    assert outcome(server.address, client_context(certs, version=TLS_1_3)) == "PONG"
    assert outcome(server.address, client_context(certs, version=TLS_1_2)) == "TLSV1_ALERT_PROTOCOL_VERSION"


def test_cipher_suites(launch: Launch, certs: Certificates) -> None:
    server = launch(config=tls(certs, 'cipher_suites: ["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"]'))
    wanted = client_context(certs, version=TLS_1_2)
    other = client_context(certs, version=TLS_1_2, ciphers="ECDHE-ECDSA-AES128-GCM-SHA256")
    with TLSConnection(server.address, wanted) as connection:
        assert connection.sock.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    assert outcome(server.address, other) == "SSLV3_ALERT_HANDSHAKE_FAILURE"
    # The list holds for TLS 1.2 only.
    assert outcome(server.address, client_context(certs, version=TLS_1_3)) == "PONG"


def s_client(server: Server, certs: Certificates, *args: str, said: bytes = b"PING\r\n") -> str:
    """Return the output of `openssl s_client`; skip the test where it is not installed."""
    if OPENSSL is None:
        pytest.skip("openssl is not installed")
    with Connection(server.address) as proxy, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        host, port = listener.getsockname()
        command = [OPENSSL, "s_client", "-connect", f"{host}:{port}", *args]
        command += ["-CAfile", str(certs.ca.cert_file)]
        client = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        # s_client expects no INFO before the handshake: `proxy` has read it, and passes the rest on.
        near, _ = listener.accept()
        with near:
            threads = [
                threading.Thread(target=_pump, args=pair) for pair in ((near, proxy.sock), (proxy.sock, near))
            ]
            for thread in threads:
                thread.start()
            try:
                answer, _ = client.communicate(said, TIMEOUT)
            finally:
                client.kill()
                client.wait()
                for sock in (near, proxy.sock):
                    _shut(sock)
                for thread in threads:
                    thread.join(TIMEOUT)
    return answer.decode(errors="replace")


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


def test_curve_preferences(launch: Launch, certs: Certificates) -> None:
    server = launch(config=tls(certs, 'curve_preferences: ["CurveP384"]'))
    assert "Server Temp Key: ECDH, secp384r1" in s_client(server, certs, "-groups", "X25519:P-384")
    assert "alert handshake failure" in s_client(server, certs, "-groups", "X25519:P-256")


def test_renegotiation_is_refused(server: Server, certs: Certificates) -> None:
    said = s_client(server, certs, "-tls1_2", said=b"R\n")
    assert "RENEGOTIATING" in said
    assert "alert unexpected message" in said or "no renegotiation" in said


# -- several certificates --------------------------------------------------------------------------------


def test_the_certificate_is_chosen_by_name_and_by_key(launch: Launch, certs: Certificates) -> None:
    one = certs.make("one", issuer=certs.ca, names=("one.example",))
    two = certs.make("two", issuer=certs.ca, names=("*.two.example",), kind="rsa")
    pairs = ", ".join(f"{{ {cert.tls_block} }}" for cert in (one, two))
    server = launch(config=f"tls {{ certs: [ {pairs} ] }}")
    served = {}
    for name in ("one.example", "a.two.example", "three.example", None):
        context = client_context(certs, insecure=True)
        with TLSConnection(server.address, context, name=name) as connection:
            served[name] = connection.sock.getpeercert(binary_form=True)
    assert served == {
        "one.example": one.der,
        "a.two.example": two.der,
        "three.example": one.der,
        None: one.der,
    }
    rsa_only = client_context(certs, insecure=True, version=TLS_1_2, ciphers="aRSA")
    with TLSConnection(server.address, rsa_only, name=None) as connection:
        assert connection.sock.getpeercert(binary_form=True) == two.der


def test_a_reload_replaces_the_certificate_for_new_clients(launch: Launch, certs: Certificates) -> None:
    server = launch(config=tls(certs))
    context = client_context(certs)
    renewed = certs.make("renewed", issuer=certs.ca)
    with TLSConnection(server.address, context) as old:
        old.send(PLAIN_CONNECT)
        assert old.fence() == []
        server.conf.write_text(server.conf.read_text().replace(certs.server.tls_block, renewed.tls_block))
        server.process.send_signal(signal.SIGHUP)
        server.wait_log("Reloaded: tls = enabled")
        server.wait_log("Reloaded server configuration")
        with TLSConnection(server.address, context) as new:
            assert new.sock.getpeercert(binary_form=True) == renewed.der
        assert old.fence() == []


# -- failures --------------------------------------------------------------------------------------------

GARBAGE = {
    "the protocol in clear": PLAIN_CONNECT + b"PING\r\n",
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "zeros": bytes(64),
    "noise": bytes(range(30, 256)),
}


@pytest.mark.parametrize("sent", GARBAGE.values(), ids=list(GARBAGE))
def test_who_does_not_speak_tls_is_told_nothing(server: Server, sent: bytes) -> None:
    start = len(server.log)
    with Connection(server.address) as connection:
        connection.send(sent)
        assert connection.rest() == b""
    server.wait_log(
        r"\[DBG\] .* - TLS handshake error: tls: first record does not look like a TLS handshake", start
    )
    server.wait_log("Client connection closed: TLS Handshake Failure", start)


def test_a_record_that_is_no_hello_is_refused(server: Server) -> None:
    start = len(server.log)
    with Connection(server.address) as connection:
        connection.send(b"\x16\x03\x01\x00\x05" + b"\x63\x00\x00\x01\x00")
        answer = connection.rest()
    assert answer[:5] in (b"", b"\x15\x03\x01\x00\x02", b"\x15\x03\x03\x00\x02")
    server.wait_log(r"\[ERR\] .* - TLS handshake error: (local error: )?tls: ", start)


def test_who_leaves_without_a_word_is_logged(server: Server) -> None:
    start = len(server.log)
    Connection(server.address).close()
    server.wait_log(r"\[ERR\] .* - TLS handshake error: EOF", start)


def test_who_does_not_trust_the_server_is_logged(server: Server) -> None:
    start = len(server.log)
    context = ssl.create_default_context()
    context.maximum_version = TLS_1_2  # with 1.3 nats-server cannot read the alert of such a client
    with pytest.raises(ssl.SSLCertVerificationError):
        TLSConnection(server.address, context)
    server.wait_log(
        r"\[ERR\] .* - TLS handshake error: remote error: tls: unknown certificate authority", start
    )


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "half a hello"])
def test_a_handshake_has_a_time_limit(launch: Launch, certs: Certificates, begun: bytes) -> None:
    server = launch("-D", config=tls(certs, "timeout: 0.3"))
    with Connection(server.address) as connection:
        connection.send(begun)
        assert connection.rest() == b""
    # nats-server has two timers; either may fire first.
    server.wait_log(r"\[DBG\] .* - TLS handshake (timeout|error: read tcp \S+: i/o timeout)")
    server.wait_log("Client connection closed: TLS Handshake Failure")


def test_the_limit_is_for_the_handshake_only(launch: Launch, certs: Certificates) -> None:
    server = launch("-D", config=tls(certs, "timeout: 2"))
    with (
        TLSConnection(server.address, client_context(certs)) as connection,
        Connection(server.address) as late,
    ):
        assert late.rest() == b""  # closed by its limit, so the other's time is over too
        connection.send(PLAIN_CONNECT)
        assert connection.fence() == []


def test_no_more_handshakes_than_the_rate_limit(launch: Launch, certs: Certificates) -> None:
    server = launch("-D", config=tls(certs, "connection_rate_limit: 3"))
    error = b"-ERR 'Connection throttling is active. Please try again later.'\r\n"
    with ExitStack() as connections:
        opened = [connections.enter_context(Connection(server.address)) for _ in range(20)]
        answers = []
        for connection in opened:
            connection.sock.settimeout(0.5)
            try:
                answers.append(connection.read_op())
            except TimeoutError:
                answers.append(b"")  # accepted: the server waits for the handshake
    assert error in answers
    assert set(answers) <= {error, b""}
    server.wait_log(r"\[WRN\] Rejected \d+ connections due to TLS rate limiting")
    server.wait_log("Client connection closed: Maximum Connections Exceeded")


# -- the handshake first ---------------------------------------------------------------------------------


@VERSIONS
def test_handshake_first(launch: Launch, certs: Certificates, version: ssl.TLSVersion) -> None:
    server = launch("-D", config=tls(certs, "handshake_first: true"))
    with TLSConnection(server.address, client_context(certs, version=version), first=True) as connection:
        assert tls_fields(connection.info) == {"tls_required": True}
        connection.send(PLAIN_CONNECT)
        assert connection.fence() == []
    assert 'Clients that are not using "TLS Handshake First" option will fail to connect' in server.log


def test_handshake_first_says_nothing_in_clear(launch: Launch, certs: Certificates) -> None:
    server = launch(
        "-D", config=tls(certs, "handshake_first: true, timeout: 2", outside="allow_non_tls: true")
    )
    with pytest.raises(Closed) as closed:
        Connection(server.address)
    assert closed.value.args == (b"",)
    assert "TLS required for client connections" in server.log
    with TLSConnection(server.address, client_context(certs), first=True) as connection:
        assert tls_fields(connection.info) == {"tls_required": True, "tls_available": True}


@pytest.mark.parametrize(
    ("value", "first"),
    [("auto", False), ('"80ms"', False), ('"30s"', True)],
    ids=["auto", "late", "in time"],
)
def test_handshake_first_with_a_fallback(
    launch: Launch, certs: Certificates, value: str, first: bool
) -> None:
    server = launch(config=tls(certs, f"handshake_first: {value}"))
    with TLSConnection(server.address, client_context(certs), first=first) as connection:
        assert tls_fields(connection.info) == {"tls_required": True}
        connection.send(PLAIN_CONNECT)
        assert connection.fence() == []


def test_every_way_at_the_same_port(launch: Launch, certs: Certificates) -> None:
    server = launch(config=tls(certs, 'handshake_first: "3s"', outside="allow_non_tls: true"))
    context = client_context(certs)

    def over_tls(first: bool) -> dict[str, bool]:
        with TLSConnection(server.address, context, first=first) as connection:
            connection.send(PLAIN_CONNECT)
            assert connection.fence() == []
            return tls_fields(connection.info)

    def plain() -> dict[str, bool]:
        with Connection(server.address) as connection:
            connection.send(PLAIN_CONNECT)
            assert connection.fence() in ([], [PING])
            return tls_fields(connection.info)

    with ThreadPoolExecutor() as pool:  # the last two wait for the fallback
        ways = [pool.submit(over_tls, True), pool.submit(over_tls, False), pool.submit(plain)]
        assert [way.result() for way in ways] == [
            {"tls_required": True, "tls_available": True},
            {"tls_available": True},
            {"tls_available": True},
        ]


# -- with and without ------------------------------------------------------------------------------------


def test_clients_with_and_without_tls_hear_each_other(mixed: Server, certs: Certificates) -> None:
    with (
        TLSConnection(mixed.address, client_context(certs)) as secure,
        Connection(mixed.address) as plain,
    ):
        for connection in (secure, plain):
            connection.send(PLAIN_CONNECT + b"SUB both 1\r\n")
            assert connection.fence() in ([], [PING])
        secure.send(b"PUB both 2\r\nhi\r\n")
        plain.send(b"PUB both 2\r\nho\r\n")
        for connection in (secure, plain):
            assert sorted(connection.read_op() for _ in range(2)) == [
                b"MSG both 1 2\r\nhi\r\n",
                b"MSG both 1 2\r\nho\r\n",
            ]


def test_who_says_nothing_to_a_mixed_server_is_no_tls_client(launch: Launch, certs: Certificates) -> None:
    server = launch("-D", config=tls(certs, "timeout: 0.2", outside="allow_non_tls: true"))
    with Connection(server.address) as late, Connection(server.address) as connection:
        connection.sock.settimeout(0.6)
        with pytest.raises(TimeoutError):
            connection.sock.recv(1)
        late.send(PLAIN_CONNECT)
        assert late.fence() in ([], [PING])


# -- messages --------------------------------------------------------------------------------------------


@VERSIONS
def test_what_comes_with_the_end_of_the_handshake_is_read(
    server: Server, certs: Certificates, version: ssl.TLSVersion
) -> None:
    with Connection(server.address) as connection:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = client_context(certs, version=version)
        session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        while True:
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.send(outgoing.read())
                incoming.write(connection.sock.recv(65536))
        session.write(PLAIN_CONNECT + b"PING\r\n")
        connection.send(outgoing.read())  # in TLS 1.3: Finished and the first data together
        answer = b""
        while not answer.endswith(b"PONG\r\n"):
            try:
                answer += session.read(65536)
            except ssl.SSLWantReadError:
                incoming.write(connection.sock.recv(65536))
        assert answer == b"PONG\r\n"


@VERSIONS
def test_large_payloads(launch: Launch, certs: Certificates, version: ssl.TLSVersion) -> None:
    size = 8 << 20
    server = launch(config=tls(certs, outside=f"max_payload: {size}"))
    payload = bytes(range(256)) * (size // 256)
    context = client_context(certs, version=version)
    with (
        TLSConnection(server.address, context) as publisher,
        TLSConnection(server.address, context) as subscriber,
    ):
        subscriber.send(PLAIN_CONNECT + b"SUB big 1\r\n")
        assert subscriber.fence() == []
        publisher.send(PLAIN_CONNECT)
        sender = threading.Thread(
            target=lambda: [publisher.send(b"PUB big %d\r\n%b\r\n" % (size, payload)) for _ in range(3)]
        )
        sender.start()
        for _ in range(3):
            assert subscriber.read_op() == b"MSG big 1 %d\r\n%b\r\n" % (size, payload)
        sender.join(TIMEOUT)


@pytest.mark.parametrize("piece", [1, 7, 1000, 16384, 100000])
def test_records_of_any_size(server: Server, certs: Certificates, piece: int) -> None:
    count = 20 if piece == 1 else 200
    message = b"PUB pieces.%d 30\r\n" + b"x" * 30 + b"\r\n"
    sent = b"".join(message % piece for _ in range(count))
    with TLSConnection(server.address, client_context(certs)) as connection:
        connection.send(PLAIN_CONNECT + b"SUB pieces.%d 1\r\n" % piece)
        for start in range(0, len(sent), piece):
            connection.send(sent[start : start + piece])
        assert connection.fence() == [b"MSG pieces.%d 1 30\r\n%b\r\n" % (piece, b"x" * 30)] * count


def test_a_slow_consumer_is_closed(launch: Launch, certs: Certificates) -> None:
    server = launch("-D", config=tls(certs, outside="max_pending: 2MB\nwrite_deadline: 60s"))
    context = client_context(certs)
    with (
        TLSConnection(server.address, context) as slow,
        TLSConnection(server.address, context) as publisher,
    ):
        slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.send(PLAIN_CONNECT + b"SUB flood 1\r\n")
        assert slow.fence() == []
        publisher.send(PLAIN_CONNECT)
        message = b"PUB flood 500000\r\n" + bytes(500000) + b"\r\n"
        for _ in range(100):  # far more than socket buffers take
            publisher.send(message)
            assert publisher.fence() == []
            if "Slow Consumer Detected: MaxPending of 2097152 Exceeded" in server.log:
                break
    server.wait_log(r"Client connection closed: Slow Consumer \(Pending Bytes\)")


def test_a_reader_that_stops_misses_the_write_deadline(launch: Launch, certs: Certificates) -> None:
    server = launch("-D", config=tls(certs, outside='write_deadline: "300ms"'))
    context = client_context(certs)
    with (
        TLSConnection(server.address, context) as slow,
        TLSConnection(server.address, context) as publisher,
    ):
        slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.send(PLAIN_CONNECT + b"SUB flood 1\r\n")
        assert slow.fence() == []
        publisher.send(PLAIN_CONNECT)
        publisher.send((b"PUB flood 500000\r\n" + bytes(500000) + b"\r\n") * 20)
        assert publisher.fence() == []
        server.wait_log(
            r"Slow Consumer Detected: WriteDeadline of 300ms exceeded "
            r"with [1-9]\d* chunks of [1-9]\d* total bytes"
        )
    server.wait_log(r"Client connection closed: Slow Consumer \(Write Deadline\)")


def test_half_open_handshakes_do_not_delay_others(server: Server, certs: Certificates) -> None:
    context = client_context(certs)
    hello = _hello(context)
    with ExitStack() as connections:
        busy = connections.enter_context(TLSConnection(server.address, context))
        busy.send(PLAIN_CONNECT + b"SUB flow 1\r\n")
        assert busy.fence() == []
        for number in range(300):
            half = connections.enter_context(Connection(server.address))
            half.send(hello[: 1 + number])
            busy.send(b"PUB flow 1\r\n%d\r\n" % (number % 10))
            assert busy.fence() == [b"MSG flow 1 1\r\n%d\r\n" % (number % 10)]


def _hello(context: ssl.SSLContext) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


# -- the end ---------------------------------------------------------------------------------------------


def test_an_error_is_followed_by_the_end_of_the_stream(server: Server, certs: Certificates) -> None:
    with TLSConnection(server.address, client_context(certs)) as connection:
        connection.send(PLAIN_CONNECT + b"FOO\r\n")
        assert connection.rest() == b"-ERR 'Unknown Protocol Operation'\r\n"  # no SSLEOFError


def test_who_says_goodbye_is_closed(server: Server, certs: Certificates) -> None:
    start = len(server.log)
    with TLSConnection(server.address, client_context(certs)) as connection:
        connection.send(PLAIN_CONNECT)
        assert connection.fence() == []
        connection.sock.unwrap()
        server.wait_log("Client connection closed: Client Closed", start)


@VERSIONS
@pytest.mark.parametrize(
    ("cut", "reason"), [(0, "Client Closed"), (1, "Read Error"), (5, "Read Error"), (9, "Read Error")]
)
def test_who_is_cut_off_inside_a_record_is_told_apart(
    server: Server, certs: Certificates, version: ssl.TLSVersion, cut: int, reason: str
) -> None:
    start = len(server.log)
    with TLSConnection(server.address, client_context(certs, version=version)) as connection:
        connection.send(PLAIN_CONNECT)
        assert connection.fence() == []
        with socket.socket(fileno=os.dup(connection.sock.fileno())) as raw:
            raw.sendall(b"\x17\x03\x03\x00\x40data"[:cut])
            raw.shutdown(socket.SHUT_WR)
        server.wait_log(f"Client connection closed: {reason}", start)


def test_what_comes_before_a_goodbye_counts(server: Server, certs: Certificates) -> None:
    context = client_context(certs)
    with TLSConnection(server.address, context) as listener:
        listener.send(PLAIN_CONNECT + b"SUB last 1\r\n")
        assert listener.fence() == []
        with TLSConnection(server.address, context) as connection:
            connection.send(PLAIN_CONNECT + b"PUB last 3\r\nbye\r\n")
            connection.sock.unwrap()
        assert listener.read_op() == b"MSG last 1 3\r\nbye\r\n"


def test_a_stop_says_goodbye(launch: Launch, certs: Certificates) -> None:
    server = launch(config=tls(certs))
    with TLSConnection(server.address, client_context(certs)) as connection:
        connection.send(PLAIN_CONNECT)
        assert connection.fence() == []
        stop = threading.Thread(target=server.stop)
        stop.start()
        assert connection.rest() == b""  # no SSLEOFError
        stop.join(TIMEOUT)


def test_a_stop_does_not_wait_for_handshakes(launch: Launch, certs: Certificates) -> None:
    server = launch(config=tls(certs, 'timeout: "60s"'))
    with Connection(server.address) as connection:
        connection.send(b"\x16\x03\x01")
        server.stop()
        assert connection.rest() == b""


# -- real clients ----------------------------------------------------------------------------------------


async def test_nats_py(verifier: Server, certs: Certificates) -> None:
    context = client_context(certs, certs.client)
    async with joined(f"tls://localhost:{verifier.port}", tls=context) as client:
        got: asyncio.Queue[bytes] = asyncio.Queue()

        async def keep(message: nats.aio.msg.Msg) -> None:
            await got.put(message.data)

        await client.subscribe("py.>", cb=keep)
        for number in range(100):
            await client.publish(f"py.{number}", b"%d" % number * 100)
        await client.flush(timeout=20)
        assert [await got.get() for _ in range(100)] == [b"%d" % number * 100 for number in range(100)]


async def test_nats_py_with_the_handshake_first(launch: Launch, certs: Certificates) -> None:
    server = launch(config=tls(certs, "handshake_first: true"))
    url = f"tls://localhost:{server.port}"
    async with joined(url, tls=client_context(certs), tls_handshake_first=True) as client:
        await client.flush(timeout=20)


def test_openssl_s_client(server: Server, certs: Certificates) -> None:
    said = s_client(server, certs, "-verify_return_error", "-servername", "localhost", said=b"PING\r\n")
    assert "Verify return code: 0 (ok)" in said
