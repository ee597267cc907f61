"""A server in a thread of its own, in both ways of running."""

from collections.abc import Iterator

import pytest

from gnats.testing import ServerThread


@pytest.fixture(params=[0, 2], ids=["loop", "threads"])
def server(request: pytest.FixtureRequest) -> Iterator[ServerThread]:
    with ServerThread(io_threads=request.param, max_closed_clients=100) as running:
        yield running
