"""Events of the system account where there are many of them, or nobody for them."""

import asyncio
import json
from typing import Any

import pytest

from gnats.accountopts import AccountConfig
from gnats.authopts import User
from gnats.opts import Options
from gnats.server import Server

from .peer import TIMEOUT, Log, Peer

pytestmark = pytest.mark.timeout(60)

ACCOUNTS = [AccountConfig("SYS"), AccountConfig("A")]
USERS = [User("sys", "pw", account="SYS"), User("a", "pw", account="A")]


def options(io_threads: int, **more: Any) -> Options:
    return Options(
        host="127.0.0.1",
        port=-1,
        io_threads=io_threads,
        accounts=ACCOUNTS,
        users=USERS,
        system_account="SYS",
        **more,
    )


async def login(server: Server, user: str) -> Peer:
    peer = await Peer.connect(server.port)
    connect = {"verbose": False, "pedantic": False, "user": user, "pass": "pw"}
    assert await peer.ask(b"CONNECT " + json.dumps(connect).encode() + b"\r\n") == []
    return peer


async def payload_on(peer: Peer, subject: bytes) -> Any:
    """The document in the next message on a subject."""
    while not (await peer.line()).startswith(b"MSG " + subject + b" "):
        pass
    return json.loads(await peer.line())


async def test_nothing_is_made_of_an_event_for_nobody(io_threads: int) -> None:
    async with Server(options(io_threads)) as server:
        watch = await login(server, "sys")
        watch.send(b"SUB answer 1\r\n")
        numbers = []
        for _ in range(2):
            for _ in range(20):
                await login(server, "a")
            watch.send(b"PUB $SYS.REQ.SERVER.PING answer 0\r\n\r\n")
            numbers.append((await payload_on(watch, b"answer"))["server"]["seq"])
        assert numbers == [1, 2]


async def test_each_of_many_clients_that_come_at_once_is_told(io_threads: int) -> None:
    async with Server(options(io_threads)) as server:
        watch = await login(server, "sys")
        await watch.ask(b"SUB $SYS.ACCOUNT.A.CONNECT 1\r\nSUB $SYS.ACCOUNT.A.SERVER.CONNS 2\r\n")
        peers = await asyncio.gather(*(login(server, "a") for _ in range(200)))
        cids, counts = set(), []
        for _ in range(200):
            counts.append((await payload_on(watch, b"$SYS.ACCOUNT.A.SERVER.CONNS"))["conns"])
            cids.add((await payload_on(watch, b"$SYS.ACCOUNT.A.CONNECT"))["client"]["id"])
        assert cids == {peer.info["client_id"] for peer in peers}
        assert counts == list(range(1, 201))


async def test_one_who_does_not_read_its_events_is_a_slow_consumer(io_threads: int) -> None:
    log = Log()
    async with Server(options(io_threads, max_pending=65536), log) as server:
        deaf = await login(server, "sys")
        await deaf.ask(b"SUB $SYS.> 1\r\n")  # nothing it is sent from now on is read
        deaf.pause()
        watch = await login(server, "sys")
        watch.send(b"SUB answer 1\r\n")
        async with asyncio.timeout(TIMEOUT):
            while not log.with_text("Slow Consumer"):
                watch.send(b"PUB $SYS.REQ.SERVER.PING.VARZ answer 0\r\n\r\n" * 20)
                for _ in range(20):
                    assert (await payload_on(watch, b"answer"))["data"]["server_id"] == server.id
                await asyncio.gather(*(login(server, "a") for _ in range(20)))
        assert server.state.slow_consumers == 1
        assert await watch.ask(b"") == []
