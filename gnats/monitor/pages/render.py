"""Pages as text: JSON, indented and escaped as by Go's encoding/json."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from gnats.go.json import COMPACT, escape

Page = dict[str, object]
SLICE = 512
"""Connections or subscriptions that are processed between two yields."""


class Named(Protocol):
    """The server as every page describes it."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...


def without_empty(page: Mapping[str, object], names: Collection[str]) -> Page:
    """Return the page without those of `names` whose values are empty, zero, false or None."""
    return {name: value for name, value in page.items() if value or name not in names}


def number(value: float) -> float:
    """Return an int for a whole number, so that it is printed without a fraction, as in Go."""
    return int(value) if value == int(value) else value


def chunks(page: object, indent: int | None = 2) -> Iterator[str]:
    """Yield a page's JSON text piece by piece."""
    separators = (",", ": ") if indent else COMPACT
    encoder = json.JSONEncoder(indent=indent, separators=separators, ensure_ascii=False)
    for chunk in encoder.iterencode(page):
        yield escape(chunk)
