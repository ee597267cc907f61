"""Clusters over TLS of gnats and nats-server, which verify each other by name and by address."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.certs import Certificate, Certificates
from support.clusters import Cluster, line, mesh, star
from support.launch import Launch, launcher
from support.monitor import monitor
from support.servers import Kind, Server, selected
from support.wire import HELLO, Connection, publish_op

pytestmark = pytest.mark.timeout(120)

SIZES = (0, 1, 1000, 20_000, 300_000)


def named(kinds: Sequence[Kind]) -> str:
    return "+".join(kind.name for kind in kinds)


def pairs() -> list[tuple[Kind, ...]]:
    return list(itertools.product(selected(), repeat=2))


def triples() -> list[tuple[Kind, ...]]:
    """Return clusters of three, which together have each kind in each place."""
    kinds = selected()
    return [tuple(kinds[(first + step) % len(kinds)] for step in range(3)) for first in range(len(kinds))]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    with launcher(selected()[0], tmp_path) as launch:
        yield launch


def tls(certs: Certificates, cert: Certificate, more: str = "") -> str:
    return f"compression: off, tls {{ {cert.tls_block}, ca_file: '{certs.ca.cert_file}' {more} }}"


def require_messages(cluster: Cluster, publisher: int, subscriber: int) -> None:
    """Require that messages come from a client of one member to a client of the other, in order."""
    subject = f"from.{publisher}.to.{subscriber}"
    addresses = [cluster[number].address for number in (publisher, subscriber)]
    with Connection(addresses[0]) as client, Connection(addresses[1]) as listening:
        listening.send(HELLO + f"SUB {subject} 1\r\n".encode())
        listening.fence()
        cluster.wait_interest(publisher, subscriber, subject)
        client.send(HELLO + b"".join(publish_op(subject, b"x" * size) for size in SIZES))
        client.fence()
        heard = [listening.read_op() for _ in SIZES]
        assert [len(op.partition(b"\r\n")[2]) - 2 for op in heard] == list(SIZES)


def errors(server: Server) -> list[str]:
    return [text for text in server.log.splitlines() if "[ERR]" in text and "TLS" in text]


def require_cluster(cluster: Cluster) -> None:
    cluster.wait_mesh()
    for publisher, subscriber in itertools.permutations(range(len(cluster)), 2):
        require_messages(cluster, publisher, subscriber)
    for server in cluster.servers:
        shown = monitor(server, "/varz")["cluster"]
        assert (shown["tls_required"], shown["tls_verify"]) == (True, True)
        assert "TLS handshake complete" in server.log


@pytest.mark.parametrize("kinds", pairs(), ids=named)
@pytest.mark.parametrize("routes", [line, mesh])
def test_two_servers(
    launch: Launch,
    certs: Certificates,
    kinds: Sequence[Kind],
    routes: Callable[[int, int], Sequence[int]],
) -> None:
    """With `mesh` both dial."""
    cluster = Cluster(launch, kinds, block=tls(certs, certs.node), routes=routes)
    require_cluster(cluster)
    assert [errors(server) for server in cluster.servers] == [[], []]


@pytest.mark.parametrize("kinds", triples(), ids=named)
def test_three_servers_that_hear_of_each_other(
    launch: Launch, certs: Certificates, kinds: Sequence[Kind]
) -> None:
    """The certificate is for the name in `routes`, and other servers are told of by address."""
    cluster = Cluster(launch, kinds, block=tls(certs, certs.named_node), routes=star, host="localhost")
    require_cluster(cluster)
    assert [errors(server) for server in cluster.servers] == [[], [], []]


@pytest.mark.parametrize("kinds", pairs(), ids=named)
def test_a_stranger_stays_outside(launch: Launch, certs: Certificates, kinds: Sequence[Kind]) -> None:
    blocks = [tls(certs, certs.node), tls(certs, certs.foreign_node)]
    cluster = Cluster(launch, kinds, block=lambda number: blocks[number], routes=line)
    # A nats-server does not show a certificate of an authority that the other side has not named.
    refusals = (
        r"client didn't provide a certificate|.*signed by unknown authority \(CN=foreign node SHA-256: "
    )
    cluster[0].wait_log(rf"\[ERR\] .* - TLS route handshake error: tls: ({refusals})")
    cluster[1].wait_log("Router connection closed: (TLS Handshake Failure|Read Error)")
    assert cluster.routes(0) == cluster.routes(1) == []


@pytest.mark.parametrize("kinds", pairs(), ids=named)
def test_a_server_without_tls_stays_outside(
    launch: Launch, certs: Certificates, kinds: Sequence[Kind]
) -> None:
    blocks = [tls(certs, certs.node), "compression: off"]
    cluster = Cluster(launch, kinds, block=lambda number: blocks[number], routes=line)
    cluster[0].wait_log(r"\[ERR\] .*TLS route handshake error: tls: first record does not look like a TLS")
    assert cluster.routes(0) == cluster.routes(1) == []


@pytest.mark.parametrize("kinds", pairs(), ids=named)
def test_known_urls(launch: Launch, certs: Certificates, kinds: Sequence[Kind]) -> None:
    more = ", verify_cert_and_check_known_urls: true"
    blocks = [tls(certs, certs.named_node, more), tls(certs, certs.named_node)]
    cluster = Cluster(launch, kinds, block=lambda number: blocks[number], host="localhost")
    require_cluster(cluster)
