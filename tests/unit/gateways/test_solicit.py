"""Dialling other clusters: rounds, delays, attempts, and their log lines, by a clock that the test moves."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from support.clock import HeldClock

from gnats.gateways import solicit
from gnats.gateways.remote import Remote
from gnats.gateways.solicit import Solicitor
from gnats.go.url import parse_url
from gnats.options.options import Options
from gnats.options.values.gateway import GatewayOptions, RemoteGatewayOptions

from .fakes import Log

pytestmark = pytest.mark.timeout(60)

REFUSED = ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)")


class Dialler:
    """A Solicitor whose connections are made up: each takes the next of `outcomes`, the last one for ever."""

    def __init__(self, *outcomes: OSError | None, **block: Any) -> None:
        self.outcomes = list(outcomes)
        self.log = Log()
        self.opts = Options(gateway=GatewayOptions(name="G", port=1, **block))
        self.dialled: list[str] = []
        self.created: list[Remote] = []
        self.failed: list[str] = []
        self.inbound = False
        self.forgotten: list[str] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.sockets: list[socket.socket] = []
        self.solicitor = Solicitor(
            self.log,
            options=lambda: self.opts,
            create=lambda sock, host, port, remote, url: self.created.append(remote),
            spawn=self._spawn,
            failed=lambda remote, error: self.failed.append(error),
            forget=self._forget,
            connect=self._connect,
        )

    def _forget(self, remote: Remote) -> bool:
        if not self.inbound:
            self.forgotten.append(remote.name)
        return not self.inbound

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _connect(self, host: str, port: int) -> socket.socket:
        self.dialled.append(f"{host}:{port}")
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if outcome:
            raise outcome
        self.sockets.append(socket.socket())
        return self.sockets[-1]

    def times(self) -> int:
        """Return how often it has dialled since the last call."""
        count = len(self.dialled)
        self.dialled.clear()
        return count


Make = Callable[..., Dialler]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    made: list[Dialler] = []

    def make(*outcomes: OSError | None, **block: Any) -> Dialler:
        made.append(Dialler(*outcomes, **block))
        return made[-1]

    yield make
    for dialler in made:
        for task in dialler.tasks:
            task.cancel()
        for sock in dialler.sockets:
            sock.close()


def explicit(*urls: str) -> Remote:
    return Remote("F", RemoteGatewayOptions("F", tuple(map(parse_url, urls or ("nats://127.0.0.1:1",)))))


def implicit(*hosts: str) -> Remote:
    remote = Remote("K")
    remote.add(hosts or ("127.0.0.1:1",))
    return remote


async def test_a_configured_cluster_is_dialled_every_second_for_ever(make: Make, clock: HeldClock) -> None:
    dialler = make(REFUSED, connect_retries=1)
    dialler.opts.connect_error_reports = 3
    dialler.solicitor.dial(explicit())
    await clock.advance(5.5)
    assert dialler.times() == 6
    at = 'explicit gateway "F" (127.0.0.1:1) at 127.0.0.1:1 (attempt 1)'
    reason = "dial tcp 127.0.0.1:1: connect: connection refused"
    assert dialler.log.lines[:2] == [f"Connecting to {at}", f"Error connecting to {at}: {reason}"]
    assert dialler.failed == [reason] * 6


async def test_only_some_attempts_are_reported(make: Make, clock: HeldClock) -> None:
    dialler = make(REFUSED)
    dialler.opts.connect_error_reports = 3
    dialler.log.debug_on = False
    dialler.solicitor.dial(explicit())
    await clock.advance(6.5)
    errors = [line for line in dialler.log.lines if line.startswith("Error")]
    assert [line.partition("attempt ")[2][0] for line in errors] == ["1", "3", "6"]


async def test_a_round_dials_each_url_until_one_answers(make: Make, clock: HeldClock) -> None:
    dialler = make(REFUSED, REFUSED, None)
    dialler.solicitor.dial(remote := explicit(*(f"nats://127.0.0.1:{n}" for n in range(1, 4))))
    await clock.settle()
    assert sorted(dialler.dialled) == ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]
    assert dialler.created == [remote]
    assert (dialler.tasks, remote.dialling) == (set(), False)


async def test_the_time_between_rounds_grows_with_connect_backoff(make: Make, clock: HeldClock) -> None:
    dialler = make(REFUSED, connect_backoff=True)
    dialler.solicitor.dial(explicit())
    for seconds in 0.5, 1, 2, 4, 8, 16, 30, 30:
        await clock.advance(seconds)
        assert dialler.times() == 1


async def test_a_url_without_a_port_is_an_error_of_every_round(make: Make, clock: HeldClock) -> None:
    dialler = make(None)
    dialler.solicitor.dial(explicit("nats://127.0.0.1"))
    await clock.advance(1.5)
    error = "address 127.0.0.1: missing port in address"
    assert dialler.log.lines == [
        f'Error getting IP for explicit gateway "F" (127.0.0.1): {error}' for _ in range(2)
    ]


async def test_a_cluster_that_others_tell_of_is_forgotten_after_its_attempts(
    make: Make, clock: HeldClock
) -> None:
    dialler = make(REFUSED, connect_retries=2)
    dialler.solicitor.dial(implicit())
    await clock.advance(10)
    assert (dialler.times(), dialler.forgotten, dialler.tasks) == (3, ["K"], set())


async def test_a_cluster_that_has_dialled_itself_is_dialled_on(make: Make, clock: HeldClock) -> None:
    """With a pause, unlike nats-server."""
    dialler = make(REFUSED)
    dialler.inbound = True
    dialler.solicitor.dial(implicit())
    await clock.advance(3.5)
    assert dialler.times() == 4
    dialler.inbound = False
    await clock.advance(10)
    assert (dialler.times(), dialler.forgotten) == (1, ["K"])


@pytest.mark.parametrize(("remote", "delay"), [(explicit(), 1.1), (implicit(), 0.1)])
async def test_a_lost_cluster_is_dialled_after_a_while(
    make: Make, clock: HeldClock, remote: Remote, delay: float
) -> None:
    dialler = make(None)
    dialler.solicitor.dial_again(remote)
    await clock.advance(delay - 0.01)
    assert dialler.created == []
    await clock.advance(0.02)
    assert dialler.created == [remote]


@pytest.mark.parametrize(("remote", "first"), [(explicit(), 1.0), (implicit(), 0.05)])
async def test_a_cluster_that_refuses_is_dialled_ever_later(
    make: Make, clock: HeldClock, remote: Remote, first: float
) -> None:
    dialler = make(None)
    for refusals in range(1, 4):
        remote.refusals = refusals
        dialler.solicitor.dial_again(remote)
        delay = first * 2 ** (refusals - 1) + solicit.SPREAD
        await clock.advance(delay - 0.01)
        assert dialler.times() == 0
        await clock.advance(0.02)
        assert dialler.times() == 1
    remote.refusals = 40
    dialler.solicitor.dial_again(remote)
    await clock.advance(solicit.CONNECT_DELAY_MAX + 0.2)
    assert dialler.times() == 1


async def test_a_cluster_is_dialled_by_one_task(make: Make, clock: HeldClock) -> None:
    dialler = make(None)
    remote = explicit()
    dialler.solicitor.dial(remote)
    dialler.solicitor.dial_again(remote)
    await clock.advance(5)
    assert dialler.times() == 1


def test_urls_that_a_cluster_tells_of_replace_earlier_ones() -> None:
    remote = explicit("nats://a:1", "nats://u:p@b:2")
    remote.add(["c:3", "a:1"])
    remote.replace_discovered(["d:4", "b:2", "\n"])
    assert remote.hosts == ["a:1", "b:2", "d:4"]
    assert {url.host: url.user for url in remote.shuffled()} == {"a:1": "", "b:2": "u", "d:4": ""}


def test_a_name_stands_for_addresses() -> None:
    remote = implicit("127.0.0.1:1", "localhost:2")
    assert remote.tls_name.of(parse_url("nats://127.0.0.1:1")) == "localhost"
