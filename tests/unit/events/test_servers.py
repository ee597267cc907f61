"""The other servers, from their events; the time is held."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from support.clock import HeldClock

from gnats.accounts.account import Account
from gnats.accounts.internal_client import Callback, Message
from gnats.events.servers import CHECK_INTERVAL, GONE_AFTER, Servers
from gnats.log.logger import Logger


class Client:
    """Keeps subscriptions and published messages."""

    def __init__(self) -> None:
        self.callbacks: dict[bytes, Callback] = {}
        self.published: list[tuple[bytes, bytes, bytes]] = []

    def subscribe(self, subject: bytes, callback: Callback) -> None:
        self.callbacks[subject] = callback

    def publish(self, subject: bytes, payload: bytes, *, reply: bytes) -> None:
        self.published.append((subject, payload, reply))


class World:
    """A server's knowledge of others, and what it makes of it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.client = Client()
        self.accounts = {"A": Account("A", max_connections=2)}
        self.answers = 0
        self.exceeded: list[Account] = []
        events: Any = SimpleNamespace(
            server_id="ME",
            server_info=lambda: {"id": "ME"},
            has_interest=lambda subject: True,
            statsz_update=self._answer,
        )
        self.servers = Servers(
            self.client,  # type: ignore[arg-type]
            events,
            self.accounts,  # type: ignore[arg-type]
            Logger(self._keep, logtime=False, debug=True, trace=False),
            exceeded=self.exceeded.append,
        )

    def _answer(self) -> None:
        self.answers += 1

    def _keep(self, line: bytes) -> None:
        self.lines.append(line.decode().split("] ", 1)[1].rstrip("\n"))

    def hear(self, pattern: str, subject: str, body: object, from_server: bool = True) -> None:
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        message = Message(subject.encode(), b"", b"", payload, 7, from_server=from_server)
        self.client.callbacks[pattern.encode()](message)

    def statsz(self, server: str, seq: int, from_server: bool = True) -> None:
        body = {"server": {"id": server, "seq": seq}, "statsz": {}}
        self.hear("$SYS.SERVER.*.STATSZ", f"$SYS.SERVER.{server}.STATSZ", body, from_server)

    def conns(self, server: str, seq: int, number: int, account: str = "A", from_server: bool = True) -> None:
        body = {"server": {"id": server, "seq": seq}, "acc": account, "conns": number}
        self.hear("$SYS.SERVER.ACCOUNT.*.CONNS", f"$SYS.SERVER.ACCOUNT.{account}.CONNS", body, from_server)


@pytest.fixture
async def world(clock: HeldClock) -> World:
    return World()


async def test_a_silent_server_is_gone(world: World, clock: HeldClock) -> None:
    world.statsz("X", 1)
    world.conns("X", 2, 2)
    assert (len(world.servers), world.accounts["A"].num_elsewhere) == (1, 2)
    await clock.advance(CHECK_INTERVAL + 1)  # between the checks
    assert len(world.servers) == 1
    await clock.advance(CHECK_INTERVAL - 1)
    assert (len(world.servers), world.accounts["A"].num_elsewhere) == (0, 0)
    assert 2 * CHECK_INTERVAL > GONE_AFTER > CHECK_INTERVAL
    assert world.lines == ['[DBG] Detected orphan remote server: "X"']


@pytest.mark.parametrize("event", ["statsz", "conns"])
async def test_each_event_keeps_a_server(world: World, clock: HeldClock, event: str) -> None:
    world.statsz("X", 1)
    world.statsz("Y", 1)
    for seq in range(2, 8):
        await clock.advance(30)
        world.statsz("X", seq) if event == "statsz" else world.conns("X", seq, 1)
    await clock.advance(1)
    assert len(world.servers) == 1
    await clock.advance(GONE_AFTER + CHECK_INTERVAL)
    assert len(world.servers) == 0


async def test_checks_end(world: World, clock: HeldClock) -> None:
    world.statsz("X", 1)
    world.servers.close()
    await clock.advance(10 * GONE_AFTER)
    assert len(world.servers) == 1


async def test_a_new_server_is_answered_once(world: World) -> None:
    world.statsz("X", 1)
    world.statsz("X", 2)
    assert world.answers == 1
    world.conns("Y", 1, 0)
    assert (world.answers, len(world.servers)) == (2, 2)


async def test_an_event_out_of_order_does_not_count(world: World, clock: HeldClock) -> None:
    world.statsz("X", 5)
    await clock.advance(60)
    world.statsz("X", 5)
    assert world.lines == ['[ERR] Received out of order remote server update from: "X"']
    await clock.advance(2 * CHECK_INTERVAL - 60)
    assert len(world.servers) == 0


async def test_clients_do_not_speak_for_servers(world: World) -> None:
    world.statsz("X", 1, from_server=False)
    world.conns("X", 1, 9, from_server=False)
    assert (len(world.servers), world.accounts["A"].num_elsewhere) == (0, 0)
    world.statsz("X", 1)
    world.hear("$SYS.SERVER.*.SHUTDOWN", "$SYS.SERVER.X.SHUTDOWN", {}, from_server=False)
    assert len(world.servers) == 1
    world.hear("$SYS.SERVER.*.SHUTDOWN", "$SYS.SERVER.X.SHUTDOWN", {})
    assert len(world.servers) == 0


async def test_servers_without_an_id_are_not_known(world: World) -> None:
    world.statsz("", 1)
    world.hear("$SYS.SERVER.*.STATSZ", "$SYS.SERVER.X.STATSZ", {})
    world.hear("$SYS.SERVER.*.STATSZ", "$SYS.SERVER.X.STATSZ", {"server": None})
    assert len(world.servers) == 0


async def test_too_many_clients_on_all_servers(world: World) -> None:
    account = world.accounts["A"]
    world.conns("X", 1, 2)
    assert not world.exceeded
    world.conns("Y", 1, 1)
    assert world.exceeded == [account]
    world.conns("X", 2, 1)
    assert (world.exceeded, account.num_elsewhere) == ([account], 2)
    world.conns("X", 3, -5)
    assert account.clients_elsewhere == {"Y": 1}


async def test_the_others_are_asked_about_a_new_account(world: World) -> None:
    world.servers.track(Account("B"))
    ((subject, payload, reply),) = world.client.published
    assert (subject, reply) == (b"$SYS.REQ.ACCOUNT.B.CONNS", b"$SYS._INBOX_.ME")
    assert json.loads(payload) == {"server": {"id": "ME"}, "acc": "B"}
