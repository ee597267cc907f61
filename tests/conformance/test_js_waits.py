"""JetStream's waits of every kind, at the same time, end when due, also in a crowd of other waits."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.jetstream import config
from support.launch import Launch
from support.waits import CONFIG, Waiter, all_waits, crowd, set_up

pytestmark = [pytest.mark.timeout(120), pytest.mark.waits]


@pytest.mark.parametrize("others", [0, 1000])
def test_each_wait_ends_when_it_is_due(launch: Launch, tmp_path: Path, others: int) -> None:
    server = launch(config=config(tmp_path / "js", CONFIG))
    with Waiter(server) as client:
        set_up(client)
        crowd(client, others)
        all_waits(client).end()
