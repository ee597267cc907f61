"""Servers in threads of the test's process: in the event loop, and with I/O threads."""

from collections.abc import Iterator

import pytest
from support.js import NativeJs

from gnats.testing import ServerThread


@pytest.fixture
def server(io_threads: int) -> Iterator[ServerThread]:
    with ServerThread(io_threads=io_threads, max_closed_clients=100) as running:
        yield running


@pytest.fixture
def js(io_threads: int) -> Iterator[NativeJs]:
    """A server with streams and consumers, in memory."""
    js = NativeJs(io_threads)
    yield js
    js.close()
