"""Servers with streams and with consumers; the tests of a module share one of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.js import NativeJs, ReferenceJs
from support.launch import require
from support.servers import REFERENCE, Kind, selected
from support.streams import GnatsStreams, ReferenceStreams, Streams

_names = count(1)

Serve = Callable[[Path], AbstractContextManager[Streams]]


def serve(kind: Kind, directory: Path) -> AbstractContextManager[Streams]:
    if kind.is_reference:
        return ReferenceStreams(directory)
    assert kind.io_threads is not None
    return GnatsStreams(directory, kind.io_threads)


@pytest.fixture(
    scope="module", params=[kind for kind in selected() if not kind.is_reference], ids=lambda kind: kind.name
)
def tested(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GnatsStreams]:
    """A gnats server with streams, without the API."""
    with serve(request.param, tmp_path_factory.mktemp("tested")) as streams:
        yield streams


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceStreams]:
    """A reference server with JetStream."""
    require(REFERENCE)
    with ReferenceStreams(tmp_path_factory.mktemp("compared")) as streams:
        yield streams


@pytest.fixture(scope="module", params=selected(), ids=lambda kind: kind.name)
def js(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server with streams and consumers in memory: the reference, or gnats without the API."""
    kind: Kind = request.param
    made: ReferenceJs | NativeJs
    if kind.is_reference:
        require(kind)
        made = ReferenceJs(tmp_path_factory.mktemp("reference"))
    else:
        assert kind.io_threads is not None
        made = NativeJs(kind.io_threads)
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    """A unique name for a stream and its subjects."""
    return f"S{next(_names)}"
