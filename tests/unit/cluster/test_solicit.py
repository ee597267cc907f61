"""Dialling: addresses, delays, attempts, and their log lines, by a clock that the test moves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from support.clock import HeldClock

from gnats.cluster.route import Target
from gnats.cluster.solicit import Solicitor
from gnats.go.url import parse_url
from gnats.options.options import Options
from gnats.options.values.cluster import ClusterOptions

from .fakes import Log, route

pytestmark = pytest.mark.timeout(60)

REFUSED = ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)")


class Dialler:
    """A Solicitor whose connections are made up: each takes the next of `outcomes`, the last one for ever."""

    def __init__(self, *outcomes: OSError | None, accounts: tuple[str, ...] = (), **cluster: Any) -> None:
        self.outcomes = list(outcomes)
        self.log = Log()
        self.opts = Options(cluster=ClusterOptions(port=1, **cluster))
        self.accounts = accounts
        self.dialled: list[str] = []
        self.created: list[Target] = []
        self.failed: list[str] = []
        self.addresses: dict[str, list[str]] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.sockets: list[socket.socket] = []
        self.solicitor = Solicitor(
            self.log,
            options=lambda: self.opts,
            pinned=lambda: self.accounts,
            create=lambda sock, host, port, target: self.created.append(target),
            spawn=self._spawn,
            failed=lambda target, error: self.failed.append(error),
            connect=self._connect,
            resolve=self._resolve,
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _connect(self, host: str, port: int) -> socket.socket:
        self.dialled.append(f"{host}:{port}")
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, TimeoutError):
            await asyncio.get_running_loop().create_future()
        if outcome:
            raise outcome
        self.sockets.append(socket.socket())
        return self.sockets[-1]

    async def _resolve(self, host: str) -> list[str]:
        if host not in self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.addresses[host]


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


def target(url: str = "nats://127.0.0.1:1", **options: Any) -> Target:
    return Target(parse_url(url), **options)


async def test_routes_of_the_configuration_are_dialled_for_each_account_too(
    make: Make, clock: HeldClock
) -> None:
    routes = parse_url("nats://127.0.0.1:1"), parse_url("nats://[::1]:2")
    dialler = make(None, routes=routes, accounts=("S",))
    dialler.solicitor.solicit_routes()
    await clock.settle()
    assert dialler.dialled == ["127.0.0.1:1", "::1:2"] * 2
    assert [(each.explicit, each.account) for each in dialler.created] == [(True, "")] * 2 + [(True, "S")] * 2
    line = "Trying to connect to route on 127.0.0.1:1 (127.0.0.1:1)"
    assert dialler.log.lines[0] == line


async def test_explicit_routes_are_dialled_every_second_for_ever(make: Make, clock: HeldClock) -> None:
    url = parse_url("nats://127.0.0.1:1")
    dialler = make(REFUSED, routes=(url,))
    dialler.opts.connect_error_reports = 3
    dialler.solicitor.dial(target(explicit=True))
    await clock.advance(5.5)
    assert len(dialler.dialled) == 6
    errors = [line for line in dialler.log.lines if line.startswith("Error")]
    refused = "dial tcp 127.0.0.1:1: connect: connection refused"
    assert errors[0] == f"Error trying to connect to route (attempt 1): {refused}"
    dialler.opts.cluster = ClusterOptions(port=1)
    await clock.advance(1)
    assert len(dialler.dialled) == 6
    gone = 'Not attempting to connect to explicit route "nats://127.0.0.1:1", no longer part of'
    assert dialler.log.lines[-1] == f"{gone} configured routes"
    assert not dialler.tasks


async def test_levels_of_failed_attempts(make: Make, clock: HeldClock) -> None:
    dialler = make(REFUSED, connect_retries=6)
    dialler.opts.connect_error_reports = 3
    dialler.log.debug_on = False
    dialler.solicitor.dial(target())
    await clock.advance(10)
    attempts = [line.partition("attempt ")[2][0] for line in dialler.log.lines]
    assert attempts == ["1", "3", "6"]
    dialler.log.lines.clear()
    lost = route("127.0.0.1", dialled=True)
    lost.joined = True
    dialler.solicitor.dial_again(lost)  # reconnect_error_reports is 1
    await clock.advance(10)
    assert len(dialler.log.lines) == 7


async def test_implicit_routes_have_attempts(make: Make, clock: HeldClock) -> None:
    dialler = make(REFUSED)
    dialler.solicitor.dial(target())
    await clock.advance(5)
    assert len(dialler.dialled) == 1
    dialler = make(REFUSED, REFUSED, None, connect_retries=2)
    dialler.solicitor.dial(target())
    await clock.advance(5)
    assert (len(dialler.dialled), len(dialler.created)) == (3, 1)


async def test_delays_may_double(make: Make, clock: HeldClock) -> None:
    dialler = make(REFUSED, connect_backoff=True, routes=(parse_url("nats://127.0.0.1:1"),))
    dialler.solicitor.dial(target(explicit=True))
    times = []
    for second in range(100):
        before = len(dialler.dialled)
        await clock.advance(1)
        times += [second + 1] * (len(dialler.dialled) - before)
    assert times == [1, 1, 3, 7, 15, 31, 61, 91]


async def test_a_dial_takes_a_second_at_most(make: Make, clock: HeldClock) -> None:
    dialler = make(TimeoutError())
    dialler.solicitor.dial(target())
    await clock.advance(0.999)
    assert len(dialler.log.lines) == 1
    await clock.advance(0.001)
    error = "Error trying to connect to route (attempt 1): dial tcp 127.0.0.1:1: i/o timeout"
    assert dialler.log.lines[-1] == error


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("nats://127.0.0.1", "address 127.0.0.1: missing port in address"),
        ("nats://nohost:1", 'lookup for host "nohost": lookup nohost: no such host'),
        ("nats://a:", "dial tcp: lookup tcp/: unknown port"),
        ("nats://127.0.0.1:99999", "dial tcp: address 99999: invalid port"),
    ],
)
async def test_addresses_that_cannot_be_dialled(make: Make, clock: HeldClock, url: str, reason: str) -> None:
    dialler = make(None)
    dialler.solicitor.dial(target(url))
    await clock.settle()
    assert dialler.log.lines == [f"Error trying to connect to route (attempt 1): {reason}"]
    assert not dialler.dialled


async def test_names_stand_for_any_of_their_addresses_but_this_servers(make: Make, clock: HeldClock) -> None:
    dialler = make(None)
    dialler.addresses = {"n": ["10.0.0.1", "10.0.0.2"], "me": ["10.0.0.1"]}
    dialler.solicitor.to_self = frozenset((("10.0.0.1", 6222),))
    for _ in range(8):
        dialler.solicitor.dial(target("nats://n:6222"))
    dialler.solicitor.dial(target("nats://me:6222"))
    await clock.settle()
    assert set(dialler.dialled) == {"10.0.0.2:6222"}
    dialler.solicitor.dial(target("nats://me:1"))
    dialler.solicitor.dial(target("nats://10.0.0.1:6222"))  # an address is found out from the peer's INFO
    await clock.settle()
    assert sorted(dialler.dialled[-2:]) == ["10.0.0.1:1", "10.0.0.1:6222"]


async def test_a_lost_route_is_dialled_again(make: Make, clock: HeldClock) -> None:
    dialler = make(None, routes=(parse_url("nats://127.0.0.1:1"),))
    lost = route("127.0.0.1", dialled=True, explicit=True)
    dialler.solicitor.dial_again(lost)
    await clock.advance(0.999)
    assert not dialler.dialled
    await clock.advance(0.101)
    assert dialler.dialled == ["127.0.0.1:1"]
    implicit = route("127.0.0.1", dialled=True)
    implicit.joined = True
    dialler.solicitor.dial_again(implicit)
    await clock.advance(0.1)
    assert len(dialler.dialled) == 2


async def test_a_server_that_closes_at_once_is_dialled_ever_less(make: Make, clock: HeldClock) -> None:
    dialler = make(None)
    waits = []
    for _ in range(14):
        dialler.solicitor.dial_again(route("127.0.0.1", dialled=True))
        waited = 0.0
        while dialler.tasks:
            await clock.advance(0.05)
            waited += 0.05
        waits.append(waited)
    for wait, least in zip(waits, (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6), strict=False):
        assert least - 1e-6 <= wait <= least + 0.15 + 1e-6
    assert all(30 - 1e-6 <= wait <= 30.2 for wait in waits[10:])
    joined = route("127.0.0.1", dialled=True)
    joined.joined = True
    dialler.solicitor.dial_again(joined)
    await clock.advance(0.1)
    dialler.solicitor.dial_again(route("127.0.0.1", dialled=True))
    await clock.advance(0.2)
    assert not dialler.tasks


async def test_a_route_removed_while_it_was_dialled_is_closed(make: Make, clock: HeldClock) -> None:
    dialler = make(REFUSED, None, routes=(parse_url("nats://127.0.0.1:1"),))
    dialler.accounts = ("S",)
    dialler.solicitor.dial(target(explicit=True, account="S"))
    await clock.settle()
    dialler.accounts = ()
    await clock.advance(2)
    assert not dialler.created
    assert dialler.log.lines[-1].endswith('for account "S", no longer a per-account route')
