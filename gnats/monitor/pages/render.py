"""Pages as text: JSON the way Go's encoding/json indents and escapes it."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from gnats.go.json import escape

Page = dict[str, object]
SLICE = 512
"""Connections or subscriptions looked at between two yields."""


class Named(Protocol):
    """A server as every page names it."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...


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
