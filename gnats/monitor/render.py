"""Pages as text: JSON the way Go's encoding/json indents and escapes it."""

import json
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from typing import TypeVar

from gnats.gojson import escape

T = TypeVar("T")

Page = dict[str, object]
Steps = Generator[None, None, T]
"""Work that gives others their turn at each yield; its value is the result."""

SLICE = 512
"""Connections or subscriptions looked at between two yields."""


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


def without_empty(page: Mapping[str, object], names: Collection[str]) -> Page:
    """The page less those of the names that are empty, zero, false or None."""
    return {name: value for name, value in page.items() if value or name not in names}


def number(value: float) -> float:
    """A float as Go prints it: without a fraction when there is none."""
    return int(value) if value == int(value) else value


def chunks(page: object, indent: int | None = 2) -> Iterator[str]:
    """JSON text piece by piece."""
    separators = (",", ": ") if indent else (",", ":")
    encoder = json.JSONEncoder(indent=indent, separators=separators, ensure_ascii=False)
    for chunk in encoder.iterencode(page):
        yield escape(chunk)
