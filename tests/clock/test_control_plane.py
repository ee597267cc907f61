"""Timers of the control plane: periodic events, unanswered requests, late logins, lame duck mode."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from server.peer import Log
from support.clock import HeldClock

from gnats.nkeys.nkeys import KeyPair, Prefix
from gnats.options.values.accounts import AccountConfig
from gnats.options.values.auth import AuthCallout, User
from gnats.options.values.jetstream import JetStreamOptions

from .client import TIMEOUT, Client, Subscription
from .conftest import Connect, Start

ACCOUNTS: dict[str, Any] = {
    "accounts": [AccountConfig("SYS"), AccountConfig("A")],
    "users": [User("sys", "pw", account="SYS"), User("a", "pw", account="A")],
    "system_account": "SYS",
    "ping_interval": 1e6,
}


async def drained(came: Subscription) -> int:
    """Return the number of messages that have come."""
    await came.nothing()
    n = came.came.qsize()
    for _ in range(n):
        came.came.get_nowait()
    return n


async def test_the_servers_figures_come_every_ten_seconds(
    start: Start, connect: Connect, clock: HeldClock
) -> None:
    server = await start(**ACCOUNTS)
    came = await (await connect(server, user="sys", password="pw")).subscribe("$SYS.SERVER.*.STATSZ")
    await clock.advance(0.249)
    assert await came.nothing()
    await clock.advance(0.001)
    assert await drained(came) == 1
    await clock.advance(60)
    await drained(came)
    times = []
    for _ in range(3):
        await clock.advance(10)
        times.append(datetime.fromisoformat((await came.next()).json["server"]["time"]))
        assert await came.nothing()
    assert [(b - a).total_seconds() for a, b in itertools.pairwise(times)] == [10, 10]


async def test_connections_of_an_account_are_told_of_again(
    start: Start, connect: Connect, clock: HeldClock
) -> None:
    server = await start(**ACCOUNTS)
    watch = await connect(server, user="sys", password="pw")
    came = await watch.subscribe("$SYS.ACCOUNT.A.SERVER.CONNS")
    client = await connect(server, user="a", password="pw")
    assert (await came.next()).json["conns"] == 1
    for _ in range(2):
        await clock.advance(29.999)
        assert await came.nothing()
        await clock.advance(0.001)
        assert (await came.next()).json["conns"] == 1
    await client.close()
    assert (await came.next()).json["conns"] == 0
    await clock.advance(300)
    assert await came.nothing()


async def test_a_client_goes_when_its_grant_ends(start: Start, connect: Connect, clock: HeldClock) -> None:
    log = Log()
    server = await start(log)
    client = await connect(server)
    (session,) = server.clients.values()
    session.expire_after(60.0, log)
    await clock.advance(59.999)
    assert 0 < session.expires_in() < 0.01
    assert not client.closed.is_set()
    await clock.advance(0.001)
    await asyncio.wait_for(client.closed.wait(), TIMEOUT)
    assert client.errors == [b"-ERR 'User Authentication Expired'\r\n"]


async def test_a_callout_that_is_not_answered(start: Start, connect: Connect, clock: HeldClock) -> None:
    issuer = KeyPair.create(Prefix.ACCOUNT).public_key
    server = await start(
        users=[User("auth", "pw")], auth_callout=AuthCallout(issuer, auth_users=("auth",)), auth_timeout=2.0
    )
    service = await connect(server, user="auth", password="pw")
    asked = await service.subscribe("$SYS.REQ.USER.AUTH")
    client = await Client.open(server)
    client.send(b'CONNECT {"user":"a","pass":"b"}\r\n')
    await asked.next()
    await clock.advance(1.999)
    assert not client.closed.is_set()
    await clock.advance(0.001)
    await asyncio.wait_for(client.closed.wait(), TIMEOUT)
    assert client.errors == [b"-ERR 'Authorization Violation'\r\n"]
    await client.close()


async def test_a_browser_has_its_time_to_ask(start: Start, clock: HeldClock) -> None:
    server = await start(http_port=-1)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.monitor_port)
    writer.write(b"GET /varz HT")
    ended = asyncio.create_task(reader.read())
    await clock.advance(4.999)
    assert not ended.done()
    await clock.advance(0.001)
    await asyncio.wait_for(ended, TIMEOUT)
    writer.close()


async def test_lame_duck_mode_takes_its_time(start: Start, connect: Connect, clock: HeldClock) -> None:
    log = Log()
    server = await start(log, lame_duck_grace_period=10.0, lame_duck_duration=30.0, ping_interval=1e6)
    clients = [await connect(server) for _ in range(5)]
    server.lame_duck_mode()
    await clock.advance(9.999)
    assert not log.with_text("Closing existing clients")
    gone = [0]
    for _ in range(12):
        await clock.advance(0.5)
        gone.append(sum(client.closed.is_set() for client in clients))
    assert gone[1] <= 2  # the server closes them one by one, at most a second apart
    assert max(b - a for a, b in itertools.pairwise(gone)) <= 2
    for client in clients:
        await asyncio.wait_for(client.closed.wait(), TIMEOUT)
    await asyncio.wait_for(server.wait_for_shutdown(), TIMEOUT)


async def test_a_shutdown_does_not_wait_for_who_does_not_read(
    start: Start, connect: Connect, clock: HeldClock
) -> None:
    server = await start(ping_interval=1e6, write_deadline=1e6)
    deaf, publisher = await connect(server), await connect(server)
    await deaf.subscribe("a")
    deaf.pause()
    session = min(server.clients.values(), key=lambda session: session.cid)
    assert session.client is not None
    while session.client.snapshot()["pending_bytes"] < 1 << 20:
        publisher.publish("a", bytes(1 << 18))
        await publisher.fence()
    down = asyncio.create_task(server.shutdown())
    while not down.done():
        await clock.advance(1)
    deaf.go_on()


# -- JetStream -------------------------------------------------------------------------------------------


async def test_what_is_written_is_synced_at_the_interval(
    start: Start, connect: Connect, clock: HeldClock, tmp_path: Path
) -> None:
    options = JetStreamOptions(enabled=True, store_dir=str(tmp_path), sync_interval=60.0)
    server = await start(jetstream=options, ping_interval=1e6)
    js = await connect(server)
    await js.stream("F", storage="file")
    assert server.jetstream
    store = server.jetstream.accounts["$G"].streams["F"].store
    for _ in range(2):
        await js.store("F.a")
        await clock.advance(59.999)
        assert not store.rests()
        await clock.advance(0.001)
        while not store.rests():
            await clock.settle()  # a thread does the work


async def test_a_source_that_is_not_there_yet_is_asked_again(js: Client, clock: HeldClock) -> None:
    await js.api("STREAM.CREATE.C", {"name": "C", "sources": [{"name": "O"}], "storage": "memory"})
    await clock.advance(60)
    info = await js.api("STREAM.INFO.C")
    assert info["state"]["messages"] == 0
    await js.stream("O")
    await js.store("O.a")
    assert (await js.api("STREAM.INFO.C"))["state"]["messages"] == 0
    for _ in range(60):
        await clock.advance(1)
        if (await js.api("STREAM.INFO.C"))["state"]["messages"]:
            break
    assert (await js.api("STREAM.INFO.C"))["state"]["messages"] == 1
    await js.store("O.a")
    await clock.settle()
    assert (await js.api("STREAM.INFO.C"))["state"]["messages"] == 2


async def test_a_source_is_asked_again_when_a_server_connects_its_account(
    start: Start, connect: Connect, clock: HeldClock, tmp_path: Path
) -> None:
    options = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
    server = await start(jetstream=options, ping_interval=1e6)
    js = await connect(server)
    assert server.jetstream
    await js.api("STREAM.CREATE.C", {"name": "C", "sources": [{"name": "O"}], "storage": "memory"})
    await clock.advance(65)  # It has failed four times; the next attempt would be after 100 s.
    await js.stream("O")
    await js.store("O.a")
    asked = await js.subscribe("$JS.API.CONSUMER.CREATE.>")
    server.jetstream.reach_origins(server.global_account)
    await clock.advance(0.25)
    assert not await asked.nothing()
    assert (await js.api("STREAM.INFO.C"))["state"]["messages"] == 1
    await asked.next()
    server.jetstream.reach_origins(server.global_account)  # nothing is missing
    await clock.advance(5)
    assert await asked.nothing()


async def test_a_source_whose_consumer_has_gone_is_asked_again(js: Client, clock: HeldClock) -> None:
    await js.stream("O")
    await js.api("STREAM.CREATE.C", {"name": "C", "sources": [{"name": "O"}], "storage": "memory"})
    for _ in range(10):
        await clock.advance(1)
    await js.api("STREAM.DELETE.O")
    await js.stream("O")
    await js.store("O.a")
    await clock.settle()
    assert (await js.api("STREAM.INFO.C"))["state"]["messages"] == 0
    for _ in range(60):
        await clock.advance(1)
        if (await js.api("STREAM.INFO.C"))["state"]["messages"]:
            return
    raise AssertionError("the stream has not copied its source's messages")


async def test_a_snapshot_that_nobody_acknowledges(js: Client, clock: HeldClock) -> None:
    await js.stream("F")
    for _ in range(8):
        await js.store("F.a", payload=base64.b64encode(os.urandom(60_000)))
    chunks = await js.subscribe("to.snapshot")
    body = {"deliver_subject": "to.snapshot", "chunk_size": 1024, "window_size": 1024}
    await js.api("STREAM.SNAPSHOT.F", body)
    assert (await chunks.next()).reply
    await clock.advance(4.9)
    assert await chunks.nothing()
    for _ in range(4):
        await clock.advance(0.1)
    assert (await chunks.next()).status == "408 No Flow Response"


async def test_a_snapshot_that_nobody_listens_to(
    start: Start, connect: Connect, clock: HeldClock, tmp_path: Path
) -> None:
    log = Log()
    server = await start(log, jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path)))
    js = await connect(server)
    await js.stream("F")
    await js.api("STREAM.SNAPSHOT.F", {"deliver_subject": "to.nobody"})
    await clock.advance(1.9)
    assert not log.with_text("failed after")
    for _ in range(5):
        await clock.advance(0.1)
    await log.seen("failed after")
    assert log.with_text("no interest")


async def test_a_restore_that_stalls(
    start: Start, connect: Connect, clock: HeldClock, tmp_path: Path
) -> None:
    log = Log()
    server = await start(log, jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path)))
    js = await connect(server, pedantic=False)
    config = {"name": "R", "subjects": ["R.>"], "storage": "file", "retention": "limits", "max_age": 0}
    state = {"messages": 1, "bytes": 1, "first_seq": 1, "last_seq": 1}
    answer = await js.api("STREAM.RESTORE.R", {"config": config, "state": state})
    await clock.advance(4.9)
    await js.request(answer["deliver_subject"], b"x")
    await clock.advance(4.999)
    assert not log.with_text("is stalled")
    await clock.advance(0.001)
    await log.seen("is stalled")
