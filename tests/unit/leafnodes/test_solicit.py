"""Dialling remotes: URLs in turn, delays, attempts, and their log lines, by a clock that the test moves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from support.clock import HeldClock

from gnats.go.url import URL, parse_url
from gnats.leafnodes.remote import Remote
from gnats.leafnodes.solicit import Solicitor
from gnats.log.logger import Logger
from gnats.options.options import Options
from gnats.options.values.leafnodes import LeafNodeOptions, RemoteLeafOptions

pytestmark = pytest.mark.timeout(60)

REFUSED = ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)")


class Log(Logger):
    """Keeps its lines, without their levels."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        super().__init__(self._keep, logtime=False, debug=True, trace=True)

    def _keep(self, line: bytes) -> None:
        self.lines.append(line.decode().split("] ", 2)[2].rstrip("\n"))


class Dialler:
    """A Solicitor whose connections are made up: each takes the next of `outcomes`, the last one for ever."""

    def __init__(self, *outcomes: OSError | None, **block: Any) -> None:
        self.outcomes = list(outcomes)
        self.log = Log()
        self.opts = Options(leafnodes=LeafNodeOptions(**{"reconnect_interval": 2.0} | block))
        self.dialled: list[str] = []
        self.created: list[URL] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.sockets: list[socket.socket] = []
        self.solicitor = Solicitor(
            self.log,
            options=lambda: self.opts,
            create=self._create,
            spawn=self._spawn,
            connect=self._connect,
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _create(self, sock: socket.socket, host: str, port: int, remote: Remote, url: URL) -> None:
        self.created.append(url)

    async def _connect(self, host: str, port: int) -> socket.socket:
        self.dialled.append(f"{host}:{port}")
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, TimeoutError):
            await asyncio.get_running_loop().create_future()
        if outcome:
            raise outcome
        self.sockets.append(socket.socket())
        return self.sockets[-1]


Make = Callable[..., Dialler]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Dialler] = []

    def make(*outcomes: OSError | None, **options: Any) -> Dialler:
        made.append(Dialler(*outcomes, **options))
        return made[-1]

    yield make
    for dialler in made:
        for task in dialler.tasks:
            task.cancel()
        for sock in dialler.sockets:
            sock.close()


def remote(*ports: int, **options: Any) -> Remote:
    urls = tuple(parse_url(f"nats://127.0.0.1:{port}") for port in ports)
    return Remote(RemoteLeafOptions(urls, no_randomize=True, **options))


async def test_each_failure_is_for_the_next_url(make: Make, clock: HeldClock) -> None:
    dialler = make(REFUSED, REFUSED, None)
    dialler.solicitor.dial(remote(1, 2))
    await clock.settle()
    assert dialler.dialled == ["127.0.0.1:1"]
    assert dialler.log.lines == [
        'Trying to connect as leafnode to remote server on "127.0.0.1:1"',
        'Error trying to connect as leafnode to remote server "127.0.0.1:1" (attempt 1):'
        " dial tcp 127.0.0.1:1: connect: connection refused",
    ]
    await clock.advance(1.9)
    assert len(dialler.dialled) == 1
    await clock.advance(2.2)  # the interval, and at most as much again at random
    await clock.advance(4.1)
    assert dialler.dialled == ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1"]
    assert [url.host for url in dialler.created] == ["127.0.0.1:1"]


@pytest.mark.parametrize("own", [0.0, 5.0], ids=["block", "remote"])
async def test_the_time_for_a_dial(make: Make, clock: HeldClock, own: float) -> None:
    dialler = make(TimeoutError(), dial_timeout=3.0)
    dialler.solicitor.dial(remote(1, dial_timeout=own))
    await clock.settle()
    await clock.advance((own or 3.0) - 0.1)
    assert len(dialler.log.lines) == 1
    await clock.advance(0.2)
    assert dialler.log.lines[1].endswith("dial tcp 127.0.0.1:1: i/o timeout")


async def test_a_delay_comes_on_top_of_the_interval_and_counts_once(make: Make, clock: HeldClock) -> None:
    dialler, found = make(None), remote(1)
    found.delay = 30.0
    dialler.solicitor.dial_again(found)
    await clock.settle()
    await clock.advance(31.9)
    assert dialler.dialled == []
    await clock.advance(0.2)
    assert len(dialler.created) == 1
    dialler.solicitor.dial_again(found)
    await clock.settle()
    await clock.advance(2.1)
    assert len(dialler.created) == 2


async def test_the_system_accounts_remote_waits_in_a_cluster(make: Make, clock: HeldClock) -> None:
    dialler = make(None)
    dialler.solicitor.dial(remote(1), shares_system=True)
    await clock.settle()
    assert dialler.dialled == []
    await clock.advance(0.3)
    assert len(dialler.created) == 1


async def test_a_removed_remote_is_dialled_no_more(make: Make, clock: HeldClock) -> None:
    dialler, found = make(REFUSED), remote(1)
    dialler.solicitor.dial(found)
    await clock.settle()
    found.valid = False
    await clock.advance(10.0)
    assert len(dialler.dialled) == 1
    assert not dialler.tasks
