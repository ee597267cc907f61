"""Pages of streams and consumers: a request names an offset, an answer has a limit (ApiPaged)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from gnats.go.json import Json, Struct

NAMES_LIMIT = 1024
LIST_LIMIT = 256
PAGE: Struct = {"offset": "int"}
"""The field of a request."""
PAGED = {"total": 0, "offset": 0, "limit": 0}
"""The fields of a response that has no page."""


class _Listed(Protocol):
    """A stream or a consumer."""

    @property
    def name(self) -> str: ...
    @property
    def offline_reason(self) -> str: ...


L = TypeVar("L", bound=_Listed)
T = TypeVar("T")


def names_page(names: list[str], request: Json) -> tuple[Json, list[str]]:
    """Return the fields of a response that describe its page, and the names on it."""
    offset = _offset(names, request)
    return _about(names, offset, NAMES_LIMIT), names[offset : offset + NAMES_LIMIT]


def list_page(items: Sequence[T], request: Json) -> tuple[Json, Sequence[T]]:
    """Return the fields of a meta leader's response that describe its page, and the items on it.

    An empty page has no total, as in nats-server.
    """
    offset = _offset(items, request)
    page = items[offset : offset + LIST_LIMIT]
    return _about(items if page else (), offset, LIST_LIMIT), page


class ListPage(Generic[L]):
    """A page of a list. Offline items take no place on it: the answer names them, with the reason, apart."""

    def __init__(self, items: Sequence[L], request: Json) -> None:
        offset = _offset(items, request)
        self._about = _about(items, offset, LIST_LIMIT)
        self._offline: dict[str, str] = {}
        self.items: list[L] = []
        for item in items[offset:]:
            if item.offline_reason:
                self._offline[item.name] = item.offline_reason
                continue
            self.items.append(item)
            if len(self.items) >= LIST_LIMIT:
                break

    def answer(self, what: str, shown: list[Json]) -> Json:
        """Return the response: `shown` are the items as JSON, under the name `what`."""
        offline = {"missing": list(self._offline), "offline": self._offline} if self._offline else {}
        return {**self._about, what: shown, **offline}


def _offset(items: Sequence[object], request: Json) -> int:
    asked: int = request.get("offset", 0)
    return min(max(asked, 0), len(items))


def _about(items: Sequence[object], offset: int, limit: int) -> Json:
    return {"total": len(items), "offset": offset, "limit": limit}
