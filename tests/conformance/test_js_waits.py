"""Everything that waits in JetStream, side by side: it ends when it is due, also in a crowd of other waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.jetstream import config
from support.servers import Server
from support.waits import CONFIG, Waiter, all_waits, crowd, set_up

pytestmark = [pytest.mark.timeout(240), pytest.mark.waits]

Launch = Callable[..., Server]


@pytest.fixture(scope="module")
def shared(launch_shared: Launch, tmp_path_factory: pytest.TempPathFactory) -> Server:
    server = launch_shared(config=config(tmp_path_factory.mktemp("js"), CONFIG))
    with Waiter(server) as client:
        set_up(client)
    return server


@pytest.mark.parametrize("others", [0, 1000])
def test_each_wait_ends_when_it_is_due(shared: Server, others: int) -> None:
    with Waiter(shared) as client:
        if others:
            crowd(client, others)
        all_waits(client, f"-{others}").end()
