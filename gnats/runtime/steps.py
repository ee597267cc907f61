"""Long work of the event loop, divided into steps; the loop does other work in between."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import TypeVar

from gnats.runtime.pollers import TURN

T = TypeVar("T")

Steps = Generator[None, None, T]
"""A generator that pauses at each yield; it returns the result."""


def finish(steps: Steps[T]) -> T:
    """Do all steps without a pause; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


def at_once(work: Callable[[], T]) -> Steps[T]:
    """Make steps of a function that cannot be divided."""
    yield
    return work()


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items; let the loop do other work whenever the caller has used them for TURN seconds."""
    until = time.monotonic() + TURN
    for item in items:
        yield item
        if time.monotonic() >= until:
            await asyncio.sleep(0)
            until = time.monotonic() + TURN
