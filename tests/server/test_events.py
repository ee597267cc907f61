"""Events of the system account: many at once, or without subscribers."""

import asyncio
import json
import os
from typing import Any

import pytest

from gnats.options.values.accounts import AccountConfig
from gnats.options.values.auth import User
from gnats.server.server import Server
from gnats.testing.rest import wait_for_rest_in_loop

from .conftest import Connect, Start
from .peer import TIMEOUT, Log, Peer

pytestmark = pytest.mark.timeout(60)

OPTIONS: dict[str, Any] = {
    "accounts": [AccountConfig("SYS"), AccountConfig("A")],
    "users": [User("sys", "pw", account="SYS"), User("a", "pw", account="A")],
    "system_account": "SYS",
}


async def login(connect: Connect, server: Server, user: str) -> Peer:
    peer = await connect(server)
    assert await peer.connected(pedantic=False, user=user, **{"pass": "pw"}) == []
    return peer


async def payload_on(peer: Peer, subject: bytes) -> Any:
    """Return the JSON of the next message on a subject."""
    while not (await peer.line()).startswith(b"MSG " + subject + b" "):
        pass
    return json.loads(await peer.line())


async def test_nothing_is_made_of_an_event_for_nobody(start: Start, connect: Connect) -> None:
    server = await start(**OPTIONS)
    watch = await login(connect, server, "sys")
    watch.send(b"SUB answer 1\r\n")
    numbers = []
    for _ in range(2):
        for _ in range(20):
            await login(connect, server, "a")
        watch.send(b"PUB $SYS.REQ.SERVER.PING answer 0\r\n\r\n")
        numbers.append((await payload_on(watch, b"answer"))["server"]["seq"])
    assert numbers == [1, 2]


async def test_each_of_many_clients_that_come_at_once_is_told(start: Start, connect: Connect) -> None:
    server = await start(**OPTIONS)
    connected, conns = await login(connect, server, "sys"), await login(connect, server, "sys")
    await connected.ask(b"SUB $SYS.ACCOUNT.A.CONNECT 1\r\n")
    await conns.ask(b"SUB $SYS.ACCOUNT.A.SERVER.CONNS 1\r\n")
    peers = await asyncio.gather(*(login(connect, server, "a") for _ in range(200)))
    cids = {(await payload_on(connected, b"$SYS.ACCOUNT.A.CONNECT"))["client"]["id"] for _ in peers}
    counts = [(await payload_on(conns, b"$SYS.ACCOUNT.A.SERVER.CONNS"))["conns"] for _ in peers]
    assert cids == {peer.info["client_id"] for peer in peers}
    assert counts == list(range(1, 201))


async def test_one_who_does_not_read_its_events_is_a_slow_consumer(start: Start, connect: Connect) -> None:
    log = Log()
    server = await start(log, **OPTIONS, max_pending=65536, max_payload=65536)
    deaf = await login(connect, server, "sys")
    await deaf.ask(b"SUB $SYS.REQ.> 1\r\n")  # it reads nothing from now on
    deaf.pause()
    watch = await login(connect, server, "sys")
    watch.send(b"SUB answer 1\r\n")
    body = b'{"padding":"%s"}' % (b"x" * 60_000)
    request = b"PUB $SYS.REQ.SERVER.PING.VARZ answer %d\r\n%s\r\n" % (len(body), body)
    async with asyncio.timeout(TIMEOUT):
        while not log.with_text("Slow Consumer"):
            watch.send(request * 5)
            for _ in range(5):
                assert (await payload_on(watch, b"answer"))["data"]["server_id"] == server.id
            await login(connect, server, "a")
    assert server.state.slow_consumers == 1
    assert await watch.ask(b"") == []


async def test_a_word_of_events_that_were_taken_already_keeps_nobody_awake(start: Start) -> None:
    """A poller may signal an event that the control plane has handled already."""
    server = await start()
    assert server.pollers
    os.eventfd_write(server.pollers._inbox.fileno(), 1)
    await wait_for_rest_in_loop(server)
