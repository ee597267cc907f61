"""Compiled classes refuse numbers that their C types cannot hold, without other effects."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from gnats.core.client import Client
from gnats.core.poller import Poller
from gnats.core.runtime.inbox import Inbox
from gnats.core.runtime.kinds import CLIENT
from gnats.core.runtime.state import ServerState

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_payload": 1 << 40},
        {"max_payload": -(1 << 63)},
        {"max_subs": 1 << 31},
        {"max_pending": -1},
        {"max_pending": 1 << 64},
        {"max_control_line": 1 << 31},
        {"ping_max": 1 << 31},
    ],
    ids=str,
)
def test_a_connection(wrong: dict[str, Any]) -> None:
    state = ServerState()
    poller = Poller(0, Inbox(), state)
    with pytest.raises(OverflowError):
        Client(CLIENT, -1, 1, poller, state, **wrong)
    gc.collect()
