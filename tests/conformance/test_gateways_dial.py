"""A server that dials other clusters: its login, attempts and URLs, and whom it never dials.

Intended difference, not tested against the reference: gnats refuses a peer that does not announce all its
interest by itself, as nats-server before 2.9.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from support.gatewaypeer import (
    ALL_SUBS_COMPLETE,
    ALL_SUBS_START,
    GOSSIP,
    FakeGateway,
    GatewayListener,
    GatewayPeer,
    launch_gateway,
    messages,
)
from support.launch import Launch
from support.routepeer import encode
from support.servers import Kind, Server, reserve_port, until
from support.wire import HELLO, PING, PONG, Connection, publish_op

pytestmark = pytest.mark.timeout(60)

LATE = 0.1
"""Seconds from a PING to its PONG, of a cluster that is far away."""


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


def test_a_peer_that_tells_of_many_clusters(
    launch: Launch, fake: FakeGateway, listener: GatewayListener
) -> None:
    """gnats dials 64 of them. Addresses that cannot be dialled do no harm, either."""
    server, peer = joined(launch, fake, listener, "connect_retries: 1")
    port = reserve_port(launch)
    for number in range(70):
        peer.send(gossip(f"K{number}", f"127.0.0.1:{port}", f"[::1%25a..b{number}]:1"))
    peer.send(gossip("F", "[::1%25a..b]:1", "127.0.0.1%25a..b:1"))
    peer.fence()
    if not server.kind.is_reference:
        server.wait_log(r'\[WRN\] Gateway "K64" is not dialled: 64 others were discovered before\n')
        assert '"K65"' not in server.log
    peer.close()
    fake.accept(listener)


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


def test_a_group_is_looked_for_in_the_nearest_cluster(
    launch: Launch, fake: FakeGateway, listener: GatewayListener
) -> None:
    """By the time of the last PONG: the two clusters take turns in being late."""
    with (
        GatewayListener() as here,
        GatewayListener() as there,
        FakeGateway() as fake,
        FakeGateway("K") as other,
    ):
        remotes = {"F": here.url, "K": there.url}
        server = launch_gateway(launch, remotes=remotes, config="ping_interval: '500ms'")
        peers = {"F": fake.accept(here), "K": other.accept(there)}
        about = b"RS+ $G y g 1\r\n" + fake.command(ALL_SUBS_COMPLETE, "$G")
        peers["F"].send(fake.command(ALL_SUBS_START, "$G") + about)
        peers["K"].send(other.command(ALL_SUBS_START, "$G") + about.replace(b'"F"', b'"K"'))
        for peer in peers.values():
            peer.fence()
            peer.answers_pings = False
        with Connection(server.address) as client:
            client.send(HELLO)
            for near, far in ("F", "K"), ("K", "F"), ("F", "K"):

                def goes_there(near: str = near, far: str = far) -> bool:
                    """Answer a PING each, one of them late; say whether a message goes where it should."""
                    for name, delay in (near, 0.0), (far, LATE):
                        peers[name].until(PING)
                        time.sleep(delay)
                        peers[name].send(PONG)
                        peers[name].fence()
                    client.send(publish_op("y"))
                    client.fence()
                    found = {name: len(messages(peer.fence())) for name, peer in peers.items()}
                    assert sum(found.values()) == 1
                    return found[near] == 1

                until(goes_there)


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
