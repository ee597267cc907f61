"""The control plane's view of clients: limits, second CONNECTs, answers of the server itself."""

import asyncio
import itertools
import json
import time
from typing import Any

import pytest
from support.clock import HeldClock

from gnats import Server
from gnats.monitor import services
from gnats.monitor.pages.render import Page
from gnats.runtime import long_work, pollers
from gnats.runtime.steps import Steps
from gnats.version import NATS_VERSION

from .conftest import Connect, Start
from .peer import Log, Peer

pytestmark = pytest.mark.timeout(60)


async def test_a_connection_too_many_is_greeted_refused_and_forgotten(start: Start, connect: Connect) -> None:
    log = Log()
    server = await start(log, max_conn=2)
    peers = [await connect(server), await connect(server)]
    for _ in range(2):
        refused = await connect(server)
        assert await refused.rest() == b"-ERR 'maximum connections exceeded'\r\n"
    assert (server.num_clients, server.total_clients) == (2, 4)
    await peers[0].close()
    await log.seen("closed: Client Closed")
    await (await connect(server)).connected()
    assert len(log.with_text("maximum connections exceeded")) == 1  # the log holds the second back
    assert len(log.with_text("closed: Maximum Connections Exceeded")) == 2


async def test_a_negative_limit_refuses_everyone(start: Start, connect: Connect) -> None:
    refused = await connect(await start(max_conn=-1))
    assert await refused.rest() == b"-ERR 'maximum connections exceeded'\r\n"


async def test_a_late_connect_of_a_refused_client_is_not_answered(start: Start, connect: Connect) -> None:
    refused = await connect(await start(max_conn=-1))
    refused.send(b"CONNECT {}\r\nPING\r\n")
    assert await refused.rest() == b"-ERR 'maximum connections exceeded'\r\n"


async def test_who_does_not_authenticate_in_time_is_closed(
    clock: HeldClock, start: Start, connect: Connect
) -> None:
    log = Log()
    server = await start(log, authorization="tok", auth_timeout=5.0)
    clock.watch(server)
    peers = [await connect(server) for _ in range(2)]
    await clock.advance(5)
    assert [await peer.rest() for peer in peers] == [b"-ERR 'Authentication Timeout'\r\n"] * 2
    await log.seen("closed: Authentication Timeout", 2)
    assert len(log.with_text("- Authentication Timeout")) == 1  # the log holds the second back


async def test_the_first_pong_is_followed_by_the_account(start: Start, connect: Connect) -> None:
    peer = await connect(await start())
    assert await peer.connected(protocol=1) == []
    info = json.loads((await peer.line()).removeprefix(b"INFO "))
    assert (info["connect_info"], info["remote_account"]) == (True, "$G")
    assert await peer.ask(b"") == []


async def test_a_second_connect_drops_the_subscriptions(start: Start, connect: Connect) -> None:
    server = await start()
    peer = await connect(server)
    await peer.connected()
    await peer.ask(b"SUB a 1\r\n")
    assert await peer.connected(echo=True) == []
    assert await peer.ask(b"PUB a 2\r\nhi\r\n") == []
    assert await peer.ask(b"SUB a 1\r\nPUB a 2\r\nhi\r\n") == [b"MSG a 1 2", b"hi"]


async def user_info(peer: Peer) -> dict[str, Any]:
    lines = await peer.ask(b"SUB inbox 1\r\nPUB $SYS.REQ.USER.INFO inbox 0\r\n\r\n")
    while len(lines) < 2:
        lines += [await peer.line()]
    assert lines[0].startswith(b"MSG inbox 1 ")
    answer: dict[str, Any] = json.loads(lines[1])
    return answer


async def test_a_client_may_ask_who_it_is(start: Start, connect: Connect) -> None:
    server = await start(username="bob", password="pw")
    peer = await connect(server)
    assert await peer.connected(**{"user": "bob", "pass": "pw"}) == []
    answer = await user_info(peer)
    assert answer["data"] == {"user": "bob", "account": "$G", "account_name": "$G"}
    about = answer["server"]
    assert (about["id"], about["name"], about["ver"]) == (server.id, server.name, NATS_VERSION)
    assert (about["jetstream"], about["seq"]) == (False, 1)


async def test_a_client_with_a_token_or_without_a_name_has_no_name(start: Start, connect: Connect) -> None:
    server = await start()
    named, nameless = await connect(server), await connect(server)
    await named.connected(auth_token="secret")
    await nameless.connected()
    assert (await user_info(named))["data"]["user"] == "[REDACTED]"
    assert (await user_info(nameless))["data"]["user"] == ""


async def test_a_question_without_reply_subject_is_not_answered(start: Start, connect: Connect) -> None:
    server = await start()
    peer = await connect(server)
    await peer.connected()
    await peer.ask(b"PUB $SYS.REQ.USER.INFO 0\r\n\r\n")
    assert (await user_info(peer))["server"]["seq"] == 1


async def test_many_clients_at_once_are_all_served(start: Start, connect: Connect) -> None:
    server = await start()
    peers = await asyncio.gather(*(connect(server) for _ in range(200)))
    assert await asyncio.gather(*(peer.connected() for peer in peers)) == [[]] * 200
    assert server.num_clients == 200
    assert len({peer.info["client_id"] for peer in peers}) == 200


class Slow:
    """Makes connz pages of several steps, each longer than a turn; counts the loop's rounds at each step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
        self.rounds = 0
        self.turns: list[int] = []
        self.steps = steps
        self.done = 0
        self.ended = asyncio.Event()
        monkeypatch.setattr(services, "connz_steps", self.page)

    async def count(self) -> None:
        while True:
            self.rounds += 1
            await asyncio.sleep(0)

    def page(self, server: Server, options: object) -> Steps[Page]:
        try:
            for step in range(self.steps):
                self.turns.append(self.rounds)
                until = time.monotonic() + 2 * pollers.TURN
                while time.monotonic() < until:
                    pass
                if step < self.steps - 1:
                    yield
            self.done += 1
        finally:
            self.ended.set()
        return {}


ASK = b"PUB $SYS.REQ.ACCOUNT.PING.CONNZ inbox 0\r\n\r\n"


@pytest.mark.parametrize("steps", [1, 5])
async def test_requests_that_take_long_let_others_have_their_turn(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    slow = Slow(monkeypatch, steps)
    peer = await connect(await start())
    await peer.connected()
    counting = asyncio.create_task(slow.count())
    peer.send(b"SUB inbox 1\r\n" + 10 * ASK)
    for _ in range(10):
        while not (await peer.line()).startswith(b"MSG inbox 1 "):
            continue
    counting.cancel()
    assert len(slow.turns) == 10 * steps
    assert all(after > before for before, after in itertools.pairwise(slow.turns))


async def test_long_requests_of_several_clients_take_turns(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch, steps=10)
    server = await start()
    many, one = await connect(server), await connect(server)
    for peer in (many, one):
        await peer.connected()
    await many.ask(b"SUB inbox 1\r\n" + 20 * ASK)
    one.send(b"SUB inbox 1\r\n" + ASK)
    while not (await one.line()).startswith(b"MSG inbox 1 "):
        continue
    assert slow.done < 15


async def test_long_requests_of_those_who_have_gone_are_given_up(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, log = Slow(monkeypatch, steps=1000), Log()
    server = await start(log)
    peer = await connect(server)
    await peer.connected()
    await peer.ask(3 * ASK)
    await peer.close()
    await log.seen("Client connection closed")
    async with asyncio.timeout(30):
        await slow.ended.wait()
    assert slow.done == 0


async def test_too_many_long_requests_drop_the_latest_of_the_client_with_most(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_work, "MOST_WAITING", 4)
    slow, log = Slow(monkeypatch, steps=10), Log()
    server = await start(log)
    many, one = await connect(server), await connect(server)
    for peer in (many, one):
        await peer.connected()
    await many.ask(10 * ASK)
    one.send(b"SUB inbox 1\r\n" + ASK)
    while not (await one.line()).startswith(b"MSG inbox 1 "):
        continue
    await log.seen("Dropped requests to the system account")
    assert slow.done < 10
