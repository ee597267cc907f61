"""A server that dials other clusters: its login, attempts and URLs, and whom it never dials.

Intended difference, not tested against the reference: gnats refuses a peer that does not announce all its
interest by itself, as nats-server before 2.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from support.gatewaypeer import GOSSIP, FakeGateway, GatewayListener, GatewayPeer, launch_gateway
from support.launch import Launch
from support.routepeer import encode
from support.servers import Kind, Server, reserve_port, until

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def fake() -> Iterator[FakeGateway]:
    with FakeGateway() as fake:
        yield fake


@pytest.fixture
def listener() -> Iterator[GatewayListener]:
    with GatewayListener() as listener:
        yield listener


def gossip(name: str, *addresses: str) -> bytes:
    """Encode an INFO that tells of a cluster."""
    about = {"server_id": "X", "gateway": name, "gateway_urls": addresses, "gateway_cmd": GOSSIP}
    return encode("INFO", about)


def joined(
    launch: Launch, fake: FakeGateway, listener: GatewayListener, block: str = ""
) -> tuple[Server, GatewayPeer]:
    """Start a server that dials the fake one, and take the connection."""
    server = launch_gateway(launch, "-D", remotes={fake.gateway: listener.url}, block=block)
    return server, fake.accept(listener)


def test_the_login_of_the_url_or_else_of_the_block(
    launch: Launch, fake: FakeGateway, listener: GatewayListener
) -> None:
    with GatewayListener() as other, FakeGateway("K") as named:
        remotes = {"F": listener.url, "K": other.url.replace("//", "//ku:k%20p@")}
        launch_gateway(launch, remotes=remotes, block="authorization { user: gu, password: gp }")
        for connect, login in (
            (fake.accept(listener).connect, ("gu", "gp")),
            (named.accept(other).connect, ("ku", "k p")),
        ):
            assert (connect["user"], connect["pass"]) == login
            assert list(connect)[3:5] == ["user", "pass"]


def test_attempts_are_logged(launch: Launch) -> None:
    port = reserve_port(launch)
    server = launch_gateway(launch, "-D", remotes={"F": f"nats://127.0.0.1:{port}"})
    at = rf'explicit gateway "F" \(127\.0\.0\.1:{port}\) at 127\.0\.0\.1:{port} \(attempt 1\)'
    server.wait_log(rf"\[INF\] Connecting to {at}\n")
    refused = rf"dial tcp 127\.0\.0\.1:{port}: connect: connection refused"
    server.wait_log(rf"\[ERR\] Error connecting to {at}: {refused}\n")
    server.wait_log(r"\[DBG\] Connecting to .* \(attempt 2\)\n")


def test_a_lost_cluster_is_dialled_again_at_the_urls_that_it_has_told(
    launch: Launch, fake: FakeGateway, listener: GatewayListener
) -> None:
    server, peer = joined(launch, fake, listener)
    with GatewayListener() as other:
        peer.send(fake.info(gateway_urls=[other.address]))
        peer.fence()
        listener.close()
        peer.close()
        server.wait_log(r'\[DBG\] Attempting reconnect for gateway "F"\n')
        fake.accept(other)
        server.wait_log(r'gid:\d+ - Outbound gateway connection to "F" \(NGATE\d+\) registered\n')


def test_a_cluster_that_is_told_of_has_few_attempts(
    launch: Launch, fake: FakeGateway, listener: GatewayListener
) -> None:
    server, peer = joined(launch, fake, listener, "connect_retries: 1")
    port = reserve_port(launch)
    at = rf'implicit gateway "K" \(127\.0\.0\.1:{port}\) at 127\.0\.0\.1:{port} '
    peer.send(gossip("K", f"127.0.0.1:{port}"))
    server.wait_log(rf"\[DBG\] Error connecting to {at}\(attempt 2\)")

    def dialled_anew() -> bool:
        """Tell of it again: it is forgotten, if not yet, then soon."""
        peer.send(gossip("K", f"127.0.0.1:{port}"))
        peer.fence()
        return len(re.findall(rf"\[INF\] Connecting to {at}\(attempt 1\)\n", server.log)) == 2

    until(dialled_anew)
    assert "(attempt 3)" not in server.log


def test_whom_it_does_not_dial(launch: Launch, fake: FakeGateway, listener: GatewayListener) -> None:
    """Its own cluster, and with `reject_unknown` those that are not configured."""
    with GatewayListener() as own, GatewayListener() as unknown:
        remotes = {"G": own.url, fake.gateway: listener.url}
        server = launch_gateway(launch, "-D", remotes=remotes, block="reject_unknown: true")
        peer = fake.accept(listener)
        peer.send(gossip("K", unknown.address) + gossip("G", own.address))
        peer.fence()
        assert "implicit" not in server.log
        assert 'gateway "G" (' not in server.log


def test_pings_begin_after_a_second(launch: Launch, fake: FakeGateway, listener: GatewayListener) -> None:
    server, _ = joined(launch, fake, listener)
    server.wait_log(r"\[DBG\] .* - gid:\d+ - Gateway Ping Timer\n")


def test_a_peer_that_waits_to_be_asked_is_refused(
    kind: Kind, launch: Launch, fake: FakeGateway, listener: GatewayListener
) -> None:
    if kind.is_reference:
        pytest.skip("the reference still takes such peers")
    server = launch_gateway(launch, remotes={fake.gateway: listener.url})
    with listener.take() as peer:
        peer.local = listener.address
        peer.send(fake.info(gateway_iom=None))
        error = 'Gateway "F" does not announce all its interest'
        assert peer.rest() == [f"-ERR '{error}'\r\n".encode()]
        peer.wait_logged(server, f"ERR {error}")
        closed = f"INF Gateway connection closed: Minimum Version Required - Remote: {fake.name}"
        peer.wait_logged(server, closed)
