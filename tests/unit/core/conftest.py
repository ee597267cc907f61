"""A data plane that the test runs itself; a module may have another one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.dataplane import DataPlane

from gnats.core.accounts.account import Account


@pytest.fixture(params=[1, 2], ids=["one poller", "two"])
def plane(request: pytest.FixtureRequest) -> Iterator[DataPlane]:
    with DataPlane(request.param) as made:
        yield made


@pytest.fixture
def other(plane: DataPlane) -> int:
    """Another poller than the first, if there is one."""
    return len(plane.pollers) - 1


@pytest.fixture
def account(plane: DataPlane) -> Account:
    return plane.account("A")
