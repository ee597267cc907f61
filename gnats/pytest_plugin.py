"""pytest fixtures with a server, which runs in a thread of its own: for tests with and without asyncio."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gnats.testing import ServerThread


@pytest.fixture
def nats_server_factory() -> Iterator[Callable[..., "ServerThread"]]:
    """Starts servers: `nats_server_factory(max_payload=1024)`; each takes the options of gnats.Options.

    They stop when the test ends.
    """
    from gnats.testing import ServerThread  # every pytest run loads this plugin, few need a server

    with ExitStack() as servers:
        yield lambda **options: servers.enter_context(ServerThread(**options))


@pytest.fixture
def nats_server(nats_server_factory: Callable[..., Any]) -> "ServerThread":
    """A server with default options on a free port of 127.0.0.1: `nats_server.client_url`, `.port`."""
    server: ServerThread = nats_server_factory()
    return server
