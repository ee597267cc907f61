"""Long work of the event loop, divided into steps; the loop does other work in between."""

from collections.abc import Callable, Generator
from typing import TypeVar

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
