"""A short soak: every kind of wait, with the outcomes of nats-server."""

from __future__ import annotations

import pytest
from support.launch import require
from support.servers import KINDS, REFERENCE

from .soak import differences, soak

TRIES = 3
"""A busy machine can hold a server up for longer than the waits are apart. A server that waits wrongly does
so in every try of the same episodes."""

pytestmark = [pytest.mark.timeout(300), pytest.mark.waits]


def test_waits_end_as_those_of_the_reference() -> None:
    require(REFERENCE)
    found: list[str] = []
    for _ in range(TRIES):
        records = soak(list(KINDS.values()), 1, episodes=6)
        if not (found := differences(records)):
            break
    assert found == []
    assert all(len(record.said) == 6 for seen in records.values() for record in seen)
