"""Lame duck mode."""

import json

import pytest

from .conftest import Connect, Start
from .peer import Log, Peer

pytestmark = pytest.mark.timeout(60)


async def test_without_clients_it_is_a_shutdown(start: Start) -> None:
    server = await start()
    server.lame_duck_mode()
    await server.wait_for_shutdown()


async def test_clients_that_take_info_are_told_and_the_port_is_closed(start: Start, connect: Connect) -> None:
    server = await start(lame_duck_grace_period=30.0)
    modern, old = await connect(server), await connect(server)
    await modern.connected(protocol=1)
    await modern.ask(b"")
    await old.connected(protocol=0)
    server.lame_duck_mode()
    assert server.in_lame_duck_mode
    line = await modern.line()
    info = json.loads(line.removeprefix(b"INFO "))
    assert info["ldm"] is True
    assert (info["client_id"], info["server_id"]) == (modern.info["client_id"], server.id)
    assert await old.ask(b"") == []
    with pytest.raises(ConnectionRefusedError):
        await Peer.connect(server.port)
    assert await modern.ask(b"SUB a 1\r\nPUB a 2\r\nhi\r\n") == [b"MSG a 1 2", b"hi"]


async def test_who_waits_for_its_first_pong_is_not_told(start: Start, connect: Connect) -> None:
    log = Log()
    server = await start(log, lame_duck_grace_period=30.0)
    early, late = await connect(server), await connect(server)
    await early.connected(protocol=1)
    await early.ask(b"")
    late.send(b'CONNECT {"verbose":true,"protocol":1}\r\n')
    assert await late.line() == b"+OK"
    with pytest.raises(KeyError, match="not ready"):
        server.ldm_client_by_id(late.info["client_id"])
    server.lame_duck_mode()
    assert json.loads((await early.line()).removeprefix(b"INFO "))["ldm"] is True
    assert await late.ask(b"") == []
    assert "ldm" not in json.loads((await late.line()).removeprefix(b"INFO "))
    server.ldm_client_by_id(late.info["client_id"])
    assert json.loads((await late.line()).removeprefix(b"INFO "))["ldm"] is True


async def test_after_the_grace_period_clients_are_closed_one_by_one_and_the_server_ends(
    start: Start, connect: Connect
) -> None:
    log = Log()
    server = await start(log, lame_duck_grace_period=0.02, lame_duck_duration=0.1)
    peers = [await connect(server) for _ in range(4)]
    for peer in peers:
        await peer.connected()
    server.lame_duck_mode()
    assert [await peer.rest() for peer in peers] == [b""] * 4
    await server.wait_for_shutdown()
    closed = [index for index, line in enumerate(log.lines) if line.endswith("closed: Server Shutdown")]
    assert len(closed) == 4
    assert log.lines.index("[INF] Closing existing clients") < closed[0]
    assert closed[-1] < log.lines.index("[INF] Server Exiting..")


async def test_a_shutdown_cuts_it_short(start: Start, connect: Connect) -> None:
    server = await start(lame_duck_grace_period=600.0, lame_duck_duration=6000.0)
    peer = await connect(server)
    server.lame_duck_mode()
    await server.shutdown()
    assert await peer.rest() == b""


async def test_it_is_entered_once(start: Start, connect: Connect) -> None:
    log = Log()
    server = await start(log, lame_duck_grace_period=30.0)
    await connect(server)
    server.lame_duck_mode()
    server.lame_duck_mode()
    assert len(log.with_text("Entering lame duck mode")) == 1
