"""A short form of the churn: a hub and a leaf node, gnats and nats-server in both places."""

from __future__ import annotations

import pytest
from support.launch import require
from support.servers import REFERENCE

from .churn import PAIRS, grown, run

pytestmark = [pytest.mark.timeout(300)]

SECONDS = 30.0


def test_memory_and_interest_stay_what_they_were() -> None:
    """The interest is looked at meanwhile; descriptors and subscriptions return to what they were."""
    require(REFERENCE)
    found = run(SECONDS)
    assert len(found) == sum(name != REFERENCE.name for pair in PAIRS for name in pair)
    assert grown(found) == []
