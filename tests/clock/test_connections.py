"""Timers of connections: CONNECT, handshakes, PINGs, write deadlines, stalls of producers."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import pytest
from server.peer import Log
from support.certs import Certificates
from support.clock import HeldClock
from support.tlswire import client_context

from gnats import Server
from gnats.options.values.auth import User
from gnats.options.values.tls import TLSOptions

from .client import TIMEOUT, Client
from .conftest import Connect, Start

MIB = 1 << 20


async def test_a_client_has_its_time_to_say_who_it_is(
    start: Start, connect: Connect, clock: HeldClock
) -> None:
    server = await start(users=[User("u", "pw")], auth_timeout=2.0)
    silent = await Client.open(server)
    other = await connect(server, user="u", password="pw")
    await clock.advance(1.999)
    assert not silent.closed.is_set()
    await clock.advance(0.001)
    await asyncio.wait_for(silent.closed.wait(), 30)
    assert silent.errors == [b"-ERR 'Authentication Timeout'\r\n"]
    await clock.advance(5)
    await other.fence()
    await silent.close()


async def test_a_client_that_said_who_it_is_in_time_stays(start: Start, clock: HeldClock) -> None:
    server = await start(users=[User("u", "pw")], auth_timeout=2.0)
    client = await Client.open(server)
    await clock.advance(1.999)
    client.send(b'CONNECT {"user":"u","pass":"pw"}\r\n')
    await client.fence()
    await clock.advance(10)
    await client.fence()
    await client.close()


async def test_a_handshake_has_its_time(start: Start, certs: Certificates, clock: HeldClock) -> None:
    log = Log()
    files = {"cert_file": str(certs.server.cert_file), "key_file": str(certs.server.key_file)}
    server = await start(log, tls=TLSOptions(**files, timeout=2.0))
    client = await Client.open(server)
    await clock.advance(1.999)
    assert not client.closed.is_set()
    await clock.advance(0.001)
    await asyncio.wait_for(client.closed.wait(), 30)
    await log.seen("TLS handshake timeout")
    await client.close()


async def test_a_greeting_in_clear_waits_for_a_hello(
    start: Start, certs: Certificates, clock: HeldClock
) -> None:
    server = await start(tls=first_tls(certs, fallback=0.5))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    came = asyncio.create_task(reader.readline())
    await clock.advance(0.499)
    assert not came.done()
    await clock.advance(0.001)
    assert (await asyncio.wait_for(came, TIMEOUT)).startswith(b"INFO ")
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    await clock.advance(0.499)
    context = client_context(certs)
    await asyncio.wait_for(writer.start_tls(context, server_hostname="localhost"), TIMEOUT)
    assert (await asyncio.wait_for(reader.readline(), TIMEOUT)).startswith(b"INFO ")
    writer.close()


def first_tls(certs: Certificates, fallback: float = 0.0) -> TLSOptions:
    """Return options for a handshake before INFO, if a hello comes within `fallback` seconds."""
    files = {"cert_file": str(certs.server.cert_file), "key_file": str(certs.server.key_file)}
    return TLSOptions(**files, timeout=60.0, handshake_first=True, handshake_first_fallback=fallback)


FIRST_PING, JITTER = 2.0, 0.4
"""Seconds."""


async def test_a_quiet_client_is_pinged(start: Start, connect: Connect, clock: HeldClock) -> None:
    server = await start(ping_interval=60.0)
    client = await connect(server)
    await clock.advance(FIRST_PING - 0.001)
    assert client.pings == 0
    await clock.advance(JITTER + 0.002)
    await client.pinged(1)
    for pings in (2, 3, 4):
        await clock.advance(60 - JITTER - 0.01)
        assert client.pings == pings - 1
        await clock.advance(JITTER + 0.01)
        await client.pinged(pings)
    assert not client.closed.is_set()


async def test_a_busy_client_is_pinged_once(start: Start, connect: Connect, clock: HeldClock) -> None:
    server = await start(ping_interval=60.0)
    client = await connect(server)
    for _ in range(10):
        await clock.advance(30)
        client.publish("a")
        await client.fence()
    assert client.pings == 1  # the first PING measures the round trip


async def test_the_round_trip_of_a_busy_client_is_measured_hourly(
    start: Start, connect: Connect, clock: HeldClock
) -> None:
    server = await start(ping_interval=600.0)
    client = await connect(server)
    await clock.advance(FIRST_PING + JITTER)
    await client.pinged(1)  # less than JITTER ago; the next looks are 600 s apart
    for _ in range(11):
        await clock.advance(300)
        client.publish("a")
        await client.fence()
    assert client.pings == 1
    for _ in range(2):
        await clock.advance(300)
        client.publish("a")
        await client.fence()
    assert client.pings == 2


async def test_a_reload_changes_the_interval_of_pings(
    start: Start, connect: Connect, clock: HeldClock
) -> None:
    server = await start(ping_interval=3600.0)
    client = await connect(server)
    await clock.advance(FIRST_PING + JITTER)
    await client.pinged(1)
    await clock.advance(60)
    await server.reload(replace(server.opts, ping_interval=10.0))
    await clock.settle()
    for pings in (2, 3):
        await clock.advance(9.999)
        assert client.pings == pings - 1
        await clock.advance(0.001)
        await client.pinged(pings)
    assert not client.closed.is_set()


async def test_a_client_that_answers_no_ping_is_stale(
    start: Start, connect: Connect, clock: HeldClock
) -> None:
    server = await start(ping_interval=60.0, ping_max=2)
    client = await connect(server)
    client.answers_pings = False
    await clock.advance(FIRST_PING + JITTER)
    await client.pinged(1)
    await clock.advance(60)
    await client.pinged(2)
    await clock.advance(60 - JITTER - 0.01)
    assert not client.closed.is_set()
    assert server.state.stale_connections == 0
    await clock.advance(JITTER + 0.01)
    await asyncio.wait_for(client.closed.wait(), 30)
    assert client.errors == [b"-ERR 'Stale Connection'\r\n"]
    assert client.pings == 2
    assert server.state.stale_connections == 1


class Deaf:
    """A subscriber with a small receive buffer that does not read."""

    def __init__(self, server: Server) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", server.port))
        self.socket.setblocking(False)

    async def subscribe(self, subject: str) -> None:
        """Subscribe; return when the server has handled it."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self.socket, f"CONNECT {{}}\r\nSUB {subject} 1\r\nPING\r\n".encode())
        got = b""
        while b"PONG\r\n" not in got:
            got += await loop.sock_recv(self.socket, 4096)

    async def read(self, size: int) -> None:
        loop = asyncio.get_running_loop()
        while size > 0:
            size -= len(await loop.sock_recv(self.socket, 1 << 20))

    def __enter__(self) -> Deaf:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


async def fill(server: Server, publisher: Client, cid: int, clock: HeldClock, least: int = MIB) -> None:
    """Publish until the socket of connection `cid` is full and `least` bytes wait for it."""
    session = server.clients[cid]
    assert session.client is not None
    while session.client.snapshot()["pending_bytes"] < least:
        publisher.publish("a", bytes(MIB // 4))
        await publisher.fence()
        await clock.settle()  # the connection's poller has written as much as the socket accepts


async def missed_deadline(log: Log, clock: HeldClock) -> None:
    """Let a write deadline of 10 s pass: a slow consumer is named then, and not before."""
    await clock.advance(9.999)
    assert not log.with_text("Slow Consumer")
    await clock.advance(0.001)
    await log.seen("Slow Consumer Detected: WriteDeadline of 10s exceeded")


async def test_what_is_not_read_has_its_time(start: Start, connect: Connect, clock: HeldClock) -> None:
    log = Log()
    server = await start(log, write_deadline=10.0, ping_interval=1e6)
    publisher = await connect(server)
    with Deaf(server) as deaf:
        await deaf.subscribe("a")
        await fill(server, publisher, max(server.clients), clock)
        await clock.advance(9.999)
        assert not log.with_text("Slow Consumer")
        assert len(server.clients) == 2
        await clock.advance(0.001)
        await log.seen("Slow Consumer Detected: WriteDeadline of 10s exceeded")
        await clock.settle()
        assert len(server.clients) == 1
    assert server.state.slow_consumers == 1


async def test_what_is_not_read_over_tls_has_its_time(
    start: Start, connect: Connect, certs: Certificates, clock: HeldClock
) -> None:
    log = Log()
    tls = replace(first_tls(certs), handshake_first=False)
    server = await start(log, tls=tls, allow_non_tls=True, write_deadline=10.0, ping_interval=1e6)
    publisher = await connect(server)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    await reader.readline()
    await asyncio.wait_for(writer.start_tls(client_context(certs), server_hostname="localhost"), TIMEOUT)
    writer.write(b"CONNECT {}\r\nSUB a 1\r\nPING\r\n")
    while b"PONG" not in await reader.readline():
        pass
    transport = writer.transport
    assert isinstance(transport, asyncio.ReadTransport)
    transport.pause_reading()
    await fill(server, publisher, max(server.clients), clock)
    await missed_deadline(log, clock)
    await clock.settle()
    assert len(server.clients) == 1
    transport.abort()


async def test_a_slow_reader_may_be_given_more_time_as_long_as_it_reads(
    start: Start, connect: Connect, clock: HeldClock
) -> None:
    log = Log()
    server = await start(log, write_deadline=10.0, write_timeout="retry", ping_interval=1e6)
    publisher = await connect(server)
    with Deaf(server) as deaf:
        await deaf.subscribe("a")
        session = server.clients[max(server.clients)]
        assert session.client is not None
        await fill(server, publisher, session.cid, clock, 32 * MIB)  # more than the kernel takes at once
        await missed_deadline(log, clock)
        pending = session.client.snapshot()["pending_bytes"]
        while session.client.snapshot()["pending_bytes"] == pending:
            await deaf.read(MIB // 4)
            await clock.settle()
        await clock.advance(10)
        await log.seen("Slow Consumer State: WriteDeadline of 10s exceeded")
        assert server.accounts["$G"].slow_consumers == 2
        await clock.advance(4)
        while session.client.snapshot()["pending_bytes"]:
            await deaf.read(1)
            await clock.settle()
        await log.seen("Slow Consumer Recovered: Flush took 4.000s with ")
        await clock.advance(100)
        assert len(server.clients) == 2
        await fill(server, publisher, session.cid, clock)
        await clock.advance(10)
        await clock.settle()
        assert len(log.with_text("Slow Consumer Detected: ")) == 2
    assert server.state.slow_consumers == 3


async def test_a_reader_that_has_stopped_is_given_more_time_once(
    start: Start, connect: Connect, clock: HeldClock
) -> None:
    log = Log()
    server = await start(log, write_deadline=10.0, write_timeout="retry", ping_interval=1e6)
    publisher = await connect(server)
    with Deaf(server) as deaf:
        await deaf.subscribe("a")
        await fill(server, publisher, max(server.clients), clock)
        await clock.advance(10)
        await log.seen("Slow Consumer Detected: WriteDeadline of 10s exceeded")
        await clock.advance(9.999)
        assert len(server.clients) == 2
        await clock.advance(0.001)
        await log.seen("Slow Consumer State: WriteDeadline of 10s exceeded")
        await clock.settle()
        assert len(server.clients) == 1
    assert server.state.slow_consumers == server.accounts["$G"].slow_consumers == 2


async def test_a_reader_that_is_slow_has_a_deadline_for_each_queue(
    start: Start, connect: Connect, clock: HeldClock
) -> None:
    log = Log()
    server = await start(log, write_deadline=10.0, ping_interval=1e6)
    publisher = await connect(server)
    with Deaf(server) as deaf:
        await deaf.subscribe("a")
        session = server.clients[max(server.clients)]
        assert session.client is not None
        for _ in range(4):
            await fill(server, publisher, session.cid, clock)
            await clock.advance(8)
            while session.client.snapshot()["pending_bytes"]:
                await deaf.read(1)
        assert not log.with_text("Slow Consumer")


async def stall(server: Server, producer: Client, clock: HeldClock) -> None:
    """Publish until the server stalls the producer."""
    assert server.pollers
    while not server.state.stalls:
        before = server.pollers.stats()["in_msgs"]
        producer.publish("a", bytes(MIB // 4))
        while server.pollers.stats()["in_msgs"] == before:
            await clock.settle()


@pytest.mark.parametrize("reads", [False, True])
async def test_a_producer_is_stalled_for_a_moment(
    start: Start, connect: Connect, clock: HeldClock, reads: bool
) -> None:
    server = await start(max_pending=16 * MIB, write_deadline=1e6, ping_interval=1e6)
    producer, other = await connect(server), await connect(server)
    with Deaf(server) as deaf:
        await deaf.subscribe("a")
        await stall(server, producer, clock)
        fence = asyncio.create_task(producer.fence())
        await other.fence()
        await clock.settle()
        await other.fence()
        assert not fence.done()
        if reads:
            await deaf.read(12 * MIB)  # the subscriber has caught up: no time has to pass
        else:
            await clock.advance(0.0019)
            await other.fence()
            assert not fence.done()
            await clock.advance(0.0081)
        await asyncio.wait_for(fence, 30)


async def test_a_producer_is_stalled_no_longer_than_the_total(
    start: Start, connect: Connect, clock: HeldClock
) -> None:
    """One read of the server has many messages for a full queue; each stalls the producer for 2 ms."""
    server = await start(max_pending=16 * MIB, write_deadline=1e6, ping_interval=1e6)
    producer, other = await connect(server), await connect(server)
    with Deaf(server) as deaf:
        await deaf.subscribe("a")
        await stall(server, producer, clock)
        await clock.advance(1)
        await producer.fence()
        producer.send(b"PUB a 1\r\nx\r\n" * 100)
        while server.state.stalls < 1 + 5:
            await clock.settle()
        fence = asyncio.create_task(producer.fence())
        await clock.advance(0.0099)
        await other.fence()
        assert not fence.done()
        await clock.advance(0.0001)
        await asyncio.wait_for(fence, TIMEOUT)
