"""Long work: connections, and accounts behind one, take turns."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from gnats.log.logger import Logger
from gnats.runtime import long_work
from gnats.runtime.long_work import LongWork

pytestmark = pytest.mark.timeout(60)


class Clock:
    """A clock that goes on whenever it is read."""

    def __init__(self) -> None:
        self._count = itertools.count()

    def monotonic(self) -> int:
        return next(self._count)


def spawn(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work)


async def test_accounts_behind_one_connection_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_work, "time", Clock())
    monkeypatch.setattr(long_work, "TURN", 4)
    monkeypatch.setattr(long_work, "MOST_WAITING", 4)
    lines: list[bytes] = []
    work = LongWork({7}, spawn, Logger(lines.append, logtime=False))
    done: list[str] = []
    ended = asyncio.Event()

    def steps(name: str, count: int) -> Iterator[None]:
        for _ in range(count):
            yield
        done.append(name)
        if len(done) == 4:
            ended.set()

    for number in range(3):
        work.begin(7, b'"A"', steps(f"A{number}", 100))
    for number in range(2):
        work.begin(7, b'"B"', steps(f"B{number}", 10))
    assert len(lines) == 1, "too many wait, and A loses its latest"
    await ended.wait()
    assert done == ["B0", "B1", "A0", "A1"]
