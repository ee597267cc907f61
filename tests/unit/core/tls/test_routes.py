"""Handshakes of routes over TLS, both sides, in pieces of any size."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest
from support.certs import Certificate, Certificates
from support.dataplane import DataPlane, Peer
from support.tlswire import TLS_1_2, TLS_1_3

from gnats.connection.closed_state import ClosedState
from gnats.core.net.log_records import LogCode
from gnats.core.runtime.inbox import EV_BEGUN, EV_CLOSED, EV_INFO, EV_LOG
from gnats.core.tls.hostname import matches_host
from gnats.core.tls.tlstransport import host_was_wrong, tls_info
from gnats.options.values.tls import TLSOptions
from gnats.tls.errors import handshake_error
from gnats.tls.links import LinkTLS

pytestmark = pytest.mark.timeout(60)

GREETING = b"CONNECT {}\r\nINFO {}\r\n"
VERSIONS = pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3], ids=["1.2", "1.3"])
DIALS = pytest.mark.parametrize("host", ["localhost", ""], ids=["dials", "accepts"])


@pytest.fixture
def plane() -> Iterator[DataPlane]:
    with DataPlane() as made:
        yield made


def link(certs: Certificates, node: Certificate | None = None, **more: object) -> LinkTLS:
    node = node or certs.node
    files = {"cert_file": node.cert_file, "key_file": node.key_file, "ca_file": certs.ca.cert_file}
    options = {name: str(path) for name, path in files.items()} | {"verify": True} | more
    return LinkTLS(TLSOptions(**options))  # type: ignore[arg-type]


class Other:
    """The other side of a route over TLS; it dials when the route does not."""

    def __init__(
        self,
        plane: DataPlane,
        certs: Certificates,
        tls: LinkTLS,
        host: str,
        *,
        cert: Certificate | None = None,
        version: ssl.TLSVersion = TLS_1_3,
    ) -> None:
        cert = cert or certs.node
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if host else ssl.PROTOCOL_TLS_CLIENT)
        context.load_cert_chain(cert.cert_file, cert.key_file)
        context.load_verify_locations(certs.ca.cert_file)
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = context.maximum_version = version
        self.received, self.to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.session = context.wrap_bio(
            self.received, self.to_send, bool(host), None if host else "localhost"
        )
        self.plane = plane
        self.peer: Peer = plane.waiting_route(
            greeting=GREETING, prepare=lambda session: tls.secure(session, host)
        )

    def exchange(self, piece: int) -> None:
        """Send what waits, a piece at a time, and receive what comes then."""
        sent = self.to_send.read()
        for at in range(0, len(sent), piece):
            self.received.write(self.peer.say(sent[at : at + piece]))
        self.received.write(self.peer.hear())

    def shake(self, piece: int = 1 << 20) -> bool:
        """Do the handshake; return whether it is done at this side."""
        for _ in range(5):
            try:
                self.session.do_handshake()
            except ssl.SSLWantReadError:
                self.exchange(piece)
            else:
                return True
        return False

    def read(self) -> bytes:
        got = b""
        while True:
            try:
                data = self.session.read(1 << 16)
            except ssl.SSLWantReadError:
                return got
            if not data:
                return got
            got += data

    def error(self) -> str:
        """Return the text of the only handshake error in the log."""
        (entry,) = [each for each in self.plane.take(EV_LOG) if each[2] == LogCode.LOG_TLS_ERROR]
        assert isinstance(entry[4], bytes)
        return handshake_error(entry[3], entry[4])

    def informed(self) -> list[object]:
        """Return the arguments of INFOs that have come, and let the route go on."""
        infos = [event[4] for event in self.plane.take(EV_INFO)]
        self.peer.session.resume()  # type: ignore[union-attr]
        return infos

    def closed(self) -> list[int]:
        return [event[2] for event in self.plane.take(EV_CLOSED)]


@VERSIONS
@DIALS
@pytest.mark.parametrize("piece", [1, 2, 5, 100, 1 << 20])
def test_a_handshake_in_pieces(
    plane: DataPlane, certs: Certificates, host: str, version: ssl.TLSVersion, piece: int
) -> None:
    """The session begins, and its greeting leaves, when the handshake is done and not before."""
    other = Other(plane, certs, link(certs), host, version=version)
    assert not plane.take(EV_BEGUN)
    assert tls_info(other.peer.session) is None
    assert other.shake(piece)
    other.exchange(piece)
    assert len(plane.take(EV_BEGUN)) == 1
    assert other.read() == GREETING
    info = tls_info(other.peer.session)
    assert info
    assert (info["version"], info["verified"]) == ("1.2" if version is TLS_1_2 else "1.3", True)
    assert info["peer_certs"][0] == certs.node.der
    assert info["peer_certs"].count(certs.node.der) == 1
    assert other.session.getpeercert(True) == certs.node.der
    other.session.write(b'INFO {"server_id":"A"}\r\n')
    other.exchange(piece)
    assert other.informed() == [b'{"server_id":"A"}']


@VERSIONS
@DIALS
def test_what_comes_with_the_end_of_the_handshake_is_read(
    plane: DataPlane, certs: Certificates, host: str, version: ssl.TLSVersion
) -> None:
    other = Other(plane, certs, link(certs), host, version=version)
    assert other.shake()
    other.session.write(b"INFO {}\r\n")
    other.exchange(1 << 20)
    assert other.informed() == [b"{}"]
    assert other.read() == GREETING


@DIALS
def test_a_handshake_that_does_not_end(plane: DataPlane, certs: Certificates, host: str) -> None:
    other = Other(plane, certs, link(certs, timeout=0.0), host)
    plane.run()
    assert other.closed() == [ClosedState.TLS_HANDSHAKE_ERROR]
    codes = [event[2] for event in plane.take(EV_LOG)]
    assert codes == [LogCode.LOG_TLS_TIMEOUT]
    assert not plane.take(EV_BEGUN)


@DIALS
def test_a_peer_that_leaves(plane: DataPlane, certs: Certificates, host: str) -> None:
    other = Other(plane, certs, link(certs), host)
    other.peer.hear()
    other.peer.socket.close()
    plane.run()
    assert other.error() == "EOF"
    assert other.closed() == [ClosedState.TLS_HANDSHAKE_ERROR]


@DIALS
def test_a_peer_with_a_key_that_is_not_pinned(plane: DataPlane, certs: Certificates, host: str) -> None:
    other = Other(plane, certs, link(certs, pinned_certs=frozenset((certs.client.pin,))), host)
    with suppress(BrokenPipeError):
        other.shake()
        other.exchange(1 << 20)
    assert other.error() == "certificate not pinned"
    assert other.closed() == [ClosedState.TLS_HANDSHAKE_ERROR]
    assert not plane.take(EV_BEGUN)
    assert not host_was_wrong(other.peer.session)


@DIALS
def test_a_peer_with_a_key_that_is_pinned(plane: DataPlane, certs: Certificates, host: str) -> None:
    other = Other(plane, certs, link(certs, pinned_certs=frozenset((certs.node.pin,))), host)
    assert other.shake()
    other.exchange(1 << 20)
    assert len(plane.take(EV_BEGUN)) == 1


def test_another_host(plane: DataPlane, certs: Certificates) -> None:
    other = Other(plane, certs, link(certs), "other.example")
    with pytest.raises(ssl.SSLError, match="BAD_CERTIFICATE"):
        other.shake()
    assert "x509: certificate is valid for localhost, not other.example (CN=node SHA-256: " in other.error()
    assert other.closed() == [ClosedState.TLS_HANDSHAKE_ERROR]
    assert host_was_wrong(other.peer.session)


def test_an_unknown_authority_is_not_another_host(plane: DataPlane, certs: Certificates) -> None:
    other = Other(plane, certs, link(certs), "localhost", cert=certs.foreign_node)
    with pytest.raises(ssl.SSLError, match="BAD_CERTIFICATE"):
        other.shake()
    assert "certificate signed by unknown authority" in other.error()
    assert other.closed() == [ClosedState.TLS_HANDSHAKE_ERROR]
    assert not host_was_wrong(other.peer.session)


def test_the_host_is_looked_at_before_the_authority(plane: DataPlane, certs: Certificates) -> None:
    other = Other(plane, certs, link(certs), "other.example", cert=certs.foreign_node)
    with pytest.raises(ssl.SSLError, match="BAD_CERTIFICATE"):
        other.shake()
    assert other.closed() == [ClosedState.TLS_HANDSHAKE_ERROR]
    assert host_was_wrong(other.peer.session)


@pytest.mark.parametrize("cert", ["foreign_node", "expired_node"])
def test_insecure(plane: DataPlane, certs: Certificates, cert: str) -> None:
    tls = link(certs, insecure=True)
    other = Other(plane, certs, tls, "other.example", cert=getattr(certs, cert))
    assert other.shake()
    other.exchange(1 << 20)
    info = tls_info(other.peer.session)
    assert info and info["peer_certs"][0] == getattr(certs, cert).der
    assert len(plane.take(EV_BEGUN)) == 1


@VERSIONS
def test_the_first_certificate_that_the_peer_supports_is_shown(
    plane: DataPlane, certs: Certificates, version: ssl.TLSVersion
) -> None:
    """Not the one with the host's name: that is for a server."""
    first = certs.make("first node", issuer=certs.ca, names=("other.example",))
    pairs = tuple((str(each.cert_file), str(each.key_file)) for each in (first, certs.node))
    tls = LinkTLS(TLSOptions(certificates=pairs, ca_file=str(certs.ca.cert_file), verify=True))
    other = Other(plane, certs, tls, "localhost", version=version)
    assert other.shake()
    assert other.session.getpeercert(True) == first.der


HOSTS = {
    "a name": ("a.example", True),
    "in capitals": ("A.EXAMPLE", True),
    "another label": ("b.example", False),
    "a name behind it": ("x.a.example", False),
    "a wildcard": ("x.wild.example", True),
    "a wildcard, in capitals": ("X-1.Wild.example", True),
    "a wildcard for an underscore": ("x_1.wild.example", True),
    "a wildcard for no label": ("wild.example", False),
    "a wildcard for two labels": ("x.y.wild.example", False),
    "a wildcard for an empty label": (".wild.example", False),
    "a wildcard for no host name": ("-x.wild.example", False),
    "the wildcard itself": ("*.wild.example", False),
    "a wildcard before one label": ("n1.nodes", True),
    "no wildcard in the middle": ("x.y.middle", False),
    "a part of a label": ("part1.example", False),
    "an address": ("10.0.0.1", True),
    "another address": ("10.0.0.2", False),
    "an address as a name": ("10.0.0.9", False),
    "an address of IPv6": ("::0:1", True),
    "an address in the form of IPv6": ("::ffff:10.0.0.1", True),
    "the common name": ("common", False),
    "nothing": ("", False),
}


@pytest.mark.parametrize("host, expected", HOSTS.values(), ids=HOSTS)
def test_hosts_of_a_certificate(certs: Certificates, host: str, expected: bool) -> None:
    names = ("a.example", "*.wild.example", "*.nodes", "x.*.middle", "part*.example", "10.0.0.9")
    cert = certs.make("common", issuer=certs.ca, names=names, addresses=("10.0.0.1", "::1"))
    assert matches_host(cert.der, host.encode()) is expected


def test_a_certificate_without_alternative_names(certs: Certificates) -> None:
    cert = certs.make("bare", names=(), addresses=())
    assert matches_host(cert.der, b"bare") is False
    with pytest.raises(ValueError, match="not a certificate"):
        matches_host(b"x", b"bare")
