"""Shutdown of a server: what its clients receive, and that it ends in every case."""

import asyncio
import socket

import pytest

from gnats import Options, Server
from gnats.server import server as server_module

from .conftest import Connect, Start
from .peer import Log, Peer

pytestmark = pytest.mark.timeout(60)


async def test_clients_are_closed_without_an_error(start: Start, connect: Connect) -> None:
    server = await start()
    peers = [await connect(server) for _ in range(3)]
    for peer in peers:
        await peer.connected()
    await server.shutdown()
    assert [await peer.rest() for peer in peers] == [b"", b"", b""]
    assert server.num_clients == 0


async def test_clients_that_have_not_connected_yet_are_closed_too(start: Start, connect: Connect) -> None:
    server = await start(authorization="tok", auth_timeout=30.0)
    peer = await connect(server)
    await server.shutdown()
    assert await peer.rest() == b""


async def test_nobody_gets_in_any_more(start: Start) -> None:
    server = await start()
    port = server.port
    await server.shutdown()
    with pytest.raises(ConnectionRefusedError):
        await Peer.connect(port)


async def test_it_may_be_asked_for_more_than_once(start: Start, connect: Connect) -> None:
    server = await start()
    await connect(server)
    await asyncio.gather(server.shutdown(), server.shutdown())
    await server.shutdown()
    await server.wait_for_shutdown()


async def test_it_goes_on_when_its_caller_is_cancelled(start: Start, connect: Connect) -> None:
    server = await start()
    peer = await connect(server)
    caller = asyncio.create_task(server.shutdown())
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await server.wait_for_shutdown()
    assert await peer.rest() == b""


async def test_during_a_start_it_waits_for_the_start(io_threads: int) -> None:
    server = Server(Options(host="127.0.0.1", port=-1, io_threads=io_threads))
    starting = asyncio.create_task(server.start())
    await asyncio.sleep(0)
    await server.shutdown()
    await starting
    with pytest.raises(ConnectionRefusedError):
        await Peer.connect(server.port)


async def test_what_was_sent_before_arrives(start: Start, connect: Connect) -> None:
    server = await start()
    peer = await connect(server)
    await peer.connected()
    await peer.ask(b"SUB a 1\r\n")
    count = 500
    peer.send(b"PUB a 4\r\ndata\r\n" * count + b"PING\r\n")
    while await peer.line() != b"MSG a 1 4":
        pass
    await server.shutdown()
    rest = await peer.rest()
    assert rest.startswith(b"data\r\nMSG a 1 4\r\n")
    assert rest.endswith((b"data\r\n", b"PONG\r\n"))


async def test_a_client_that_reads_nothing_does_not_keep_the_server(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "CLOSE_TIMEOUT", 0.2)
    log = Log()
    server = await start(log, write_deadline=30.0)
    loop = asyncio.get_running_loop()
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        await loop.sock_connect(deaf, ("127.0.0.1", server.port))
        await loop.sock_sendall(deaf, b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPING\r\n')
        heard = b""
        async with asyncio.timeout(30):
            while b"PONG\r\n" not in heard:  # subscribed; after this it reads nothing
                heard += await loop.sock_recv(deaf, 4096)
        peer = await Peer.connect(server.port)
        await peer.connected()
        payload = b"x" * 1_000_000
        for _ in range(12):
            await peer.ask(b"PUB a %d\r\n%s\r\n" % (len(payload), payload))
        await server.shutdown()
        await peer.close()
    assert [line for line in log.lines if "[DBG]" not in line][-2:] == [
        "[WRN] Dropping what 1 connections do not read",
        "[INF] Server Exiting..",
    ]
    assert server.num_clients == 0


async def test_clients_that_come_and_go_are_remembered_in_order(start: Start) -> None:
    log = Log()
    server = await start(log, max_closed_clients=3)
    cids = []
    for count in range(5):
        peer = await Peer.connect(server.port)
        cids.append(peer.info["client_id"])
        await peer.close()
        await log.seen("connection closed", count + 1)
    assert [session.cid for session in server.closed_clients] == cids[-3:]
    assert server.total_clients == 5
