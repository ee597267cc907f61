"""Pages as text: JSON the way Go's encoding/json indents and escapes it."""

import json
import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")

Page = dict[str, object]
Steps = Generator[None, None, T]
"""Work that gives others their turn at each yield; its value is the result."""

SLICE = 512
"""Connections or subscriptions looked at between two yields."""

_HTML = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


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


def marshal(page: object, indent: int | None = 2) -> str:
    """JSON text; see chunks()."""
    return "".join(chunks(page, indent))


def chunks(page: object, indent: int | None = 2) -> Iterator[str]:
    """JSON text piece by piece: characters that HTML would interpret are escaped, as Go does."""
    separators = (",", ": ") if indent else (",", ":")
    encoder = json.JSONEncoder(indent=indent, separators=separators, ensure_ascii=False)
    for chunk in encoder.iterencode(page):
        yield _HTML.sub(_escape, chunk) if _HTML.search(chunk) else chunk


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else f"\\u{code:04x}"
