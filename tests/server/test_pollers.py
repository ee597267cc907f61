"""Pollers linger before they sleep where that pays."""

import asyncio
import os
import socket
import time
from collections.abc import Callable

import pytest

from gnats import Server

from .conftest import Start

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="on one core pollers sleep at once"),
]


def lingered(server: Server) -> int:
    assert server.pollers
    return server.pollers.stats()["lingered"]


def take_turns(server: Server, pause: float, enough: Callable[[int], bool]) -> None:
    """Send PINGs until enough(number sent); wait for each answer, then for `pause` seconds.

    Wait without sleeping, so that the time that the machine takes for a wake-up does not count.
    """
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as sock:
        sock.recv(65536)
        sock.sendall(b'CONNECT {"verbose":false}\r\n')
        sock.setblocking(False)
        sent = 0
        while not enough(sent):
            sock.send(b"PING\r\n")
            came = b""
            while b"PONG\r\n" not in came:  # the server's own PING may come before or after it
                try:
                    more = sock.recv(100)
                except BlockingIOError:
                    continue
                assert more, "the server has closed the connection"
                came += more
            sent += 1
            if pause:
                time.sleep(pause)


async def test_who_waits_for_each_answer_finds_the_server_awake(start: Start) -> None:
    server = await start()
    await asyncio.to_thread(take_turns, server, 0, lambda sent: lingered(server) > 0)


async def test_who_sends_now_and_then_does_not(start: Start) -> None:
    server = await start()
    await asyncio.to_thread(take_turns, server, 0.002, lambda sent: sent == 40)
    assert lingered(server) == 0
