"""Read a server's first lines before a poller has its connection: no byte too many."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from gnats.connection.closed_state import ClosedState
from gnats.leafnodes.first_info import MOST, FirstInfo


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


class Reader:
    def __init__(self, sock: socket.socket, seconds: float = 30.0) -> None:
        self.lines: asyncio.Queue[bytes | ClosedState] = asyncio.Queue()
        self.first = FirstInfo(sock, seconds, self._take, self.lines.put_nowait)

    def _take(self, line: bytes) -> None:
        self.lines.put_nowait(line)
        if line == b"last":
            self.first.stop()


async def test_what_follows_stays_in_the_socket(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    kept = ours.dup()
    reader = Reader(ours)
    theirs.sendall(b"one\r\ntw")
    assert await reader.lines.get() == b"one"
    theirs.sendall(b"o\nlast\r\n\x16\x03rest\n")
    assert [await reader.lines.get(), await reader.lines.get()] == [b"two", b"last"]
    with kept:
        assert kept.recv(100) == b"\x16\x03rest\n"


async def test_the_end_of_the_connection(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    reader = Reader(ours)
    theirs.sendall(b"half")
    theirs.close()
    assert await reader.lines.get() is ClosedState.CLIENT_CLOSED


async def test_too_late(ends: tuple[socket.socket, socket.socket]) -> None:
    reader = Reader(ends[0], 0.0)
    assert await reader.lines.get() is ClosedState.READ_ERROR
    reader.first.stop()


async def test_an_endless_line(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    reader = Reader(ours)
    theirs.setblocking(False)
    for _ in range(MOST // 4096 + 1):
        await asyncio.get_running_loop().sock_sendall(theirs, b"x" * 4096)
    assert await reader.lines.get() is ClosedState.MAX_CONTROL_LINE_EXCEEDED
