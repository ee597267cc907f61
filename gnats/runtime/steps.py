"""Long work of the event loop in steps, between which others have their turn."""

from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that gives others their turn at each yield; its value is the result."""


def finish(steps: Steps[T]) -> T:
    """The result, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


def at_once(work: Callable[[], T]) -> Steps[T]:
    """Work that is not divided."""
    yield
    return work()
