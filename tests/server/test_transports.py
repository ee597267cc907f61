"""Connections whose transport splits and delays data and fails, below TLS or alone."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import pytest
from support.certs import Certificates
from support.tlswire import TLS_1_2, TLS_1_3, TLSConnection, client_context
from support.wire import Closed

from gnats.connection.closed_state import ClosedState
from gnats.core.client import Client
from gnats.core.net.transport_probe import disturb
from gnats.server import clients

from .conftest import Connect, Start
from .peer import Log, Peer
from .test_tls import options

pytestmark = pytest.mark.timeout(120)

PAYLOAD = bytes(range(32, 127)) * 32
HEADER = b"NATS/1.0\r\nA: b\r\n\r\n"
SENT = (
    b"SUB a.* 7\r\n"
    b"PUB a.b 5\r\nhello\r\n"
    + b"PUB a.b c %d\r\n%s\r\n" % (len(PAYLOAD), PAYLOAD)
    + b"HPUB a.c %d %d\r\n%s%s\r\n" % (len(HEADER), len(HEADER) + 2, HEADER, b"hi")
    + b"UNSUB 7\r\nPUB a.b 1\r\n-\r\n"
)
EXPECTED = (
    b"MSG a.b 7 5\r\nhello\r\n"
    + b"MSG a.b 7 c %d\r\n%s\r\n" % (len(PAYLOAD), PAYLOAD)
    + b"HMSG a.c 7 %d %d\r\n%s%s\r\n" % (len(HEADER), len(HEADER) + 2, HEADER, b"hi")
)

Disturb = Callable[..., None]


@pytest.fixture
def disturbed(monkeypatch: pytest.MonkeyPatch) -> Disturb:
    """Put a disturbing transport into connections that a server accepts from now on."""

    def disturbed(most: int, **failing: int) -> None:
        def make(*args: Any, **options: Any) -> Client:
            client = Client(*args, **options)
            disturb(client, most, **failing)
            return client

        monkeypatch.setattr(clients, "Client", make)

    return disturbed


@pytest.mark.parametrize("most", [1, 2, 61])
async def test_messages_come_and_go_in_pieces(
    start: Start, connect: Connect, disturbed: Disturb, most: int
) -> None:
    running = await start()
    disturbed(most)
    peer = await connect(running)
    assert await peer.connected(headers=True) == []
    assert await peer.ask(SENT) == EXPECTED.split(b"\r\n")[:-1]


@pytest.mark.parametrize("first", [False, True], ids=["info-first", "handshake-first"])
@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3], ids=["1.2", "1.3"])
@pytest.mark.parametrize("most", [1, 7, 64])
async def test_tls_comes_and_goes_in_pieces(
    start: Start, certs: Certificates, disturbed: Disturb, most: int, version: ssl.TLSVersion, first: bool
) -> None:
    running = await start(tls=options(certs, timeout=60.0, handshake_first=first))
    disturbed(most)

    def talk() -> None:
        with TLSConnection(
            ("127.0.0.1", running.port), client_context(certs, version=version), first=first
        ) as connection:
            connection.send(b'CONNECT {"verbose":false,"headers":true}\r\n')
            assert connection.fence() == []
            connection.send(SENT)
            assert b"".join(connection.fence()) == EXPECTED

    await asyncio.to_thread(talk)


@pytest.mark.parametrize("most", [1, 64])
async def test_a_client_without_tls_is_let_in_in_pieces(
    start: Start, certs: Certificates, connect: Connect, disturbed: Disturb, most: int
) -> None:
    running = await start(tls=options(certs), allow_non_tls=True)
    disturbed(most)
    peer = await connect(running)
    assert await peer.connected(headers=True) == []
    assert await peer.ask(SENT) == EXPECTED.split(b"\r\n")[:-1]


@pytest.mark.parametrize(
    ("failing", "reason"), [("reads", ClosedState.READ_ERROR), ("writes", ClosedState.WRITE_ERROR)]
)
@pytest.mark.parametrize("after", [1, 2, 50])
async def test_a_transport_that_fails_ends_its_connection_alone(
    start: Start, connect: Connect, disturbed: Disturb, after: int, failing: str, reason: ClosedState
) -> None:
    log = Log()
    running = await start(log)
    sound = await connect(running)
    assert await sound.connected(headers=True) == []
    disturbed(3, **{failing: after})
    broken = Peer(*await asyncio.open_connection("127.0.0.1", running.port))
    broken.send(b'CONNECT {"verbose":false,"headers":true}\r\n' + SENT)
    await log.seen(f"Client connection closed: {reason}")
    assert await sound.ask(SENT) == EXPECTED.split(b"\r\n")[:-1]
    await broken.close()


@pytest.mark.parametrize("failing", ["reads", "writes"])
@pytest.mark.parametrize("after", range(1, 40, 3))
async def test_a_transport_that_fails_under_tls_ends_its_connection_alone(
    start: Start, certs: Certificates, disturbed: Disturb, after: int, failing: str
) -> None:
    log = Log()
    running = await start(log, tls=options(certs, timeout=60.0))
    disturbed(64, **{failing: after})

    def talk() -> None:
        try:
            with TLSConnection(("127.0.0.1", running.port), client_context(certs)) as connection:
                connection.send(b'CONNECT {"verbose":false,"headers":true}\r\n' + 20 * SENT)
                connection.fence()
        except (OSError, Closed):
            pass
        else:
            pytest.fail("nothing failed")

    await asyncio.to_thread(talk)
    await log.seen("Client connection closed: ")
    assert running.clients == {}
