"""Fixtures of the tests of clusters: every ordered pair of kinds, and servers that end with a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clusters import Cluster, line
from support.launch import Launch, launcher
from support.servers import REFERENCE, Kind, NotInstalled

from .members import OLD, named, pairs, running


def require_all(kinds: tuple[Kind, ...]) -> None:
    """Skip the test where a nats-server of its cluster is missing."""
    for kind in kinds:
        try:
            kind.find()
        except NotInstalled as error:
            if kind not in (OLD, REFERENCE):
                raise
            pytest.skip(f"{error}")


@pytest.fixture(scope="module", params=pairs(), ids=named)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two members: the second dials the first. The tests of a module share them."""
    require_all(request.param)
    with running(tmp_path_factory.mktemp("pair"), request.param, routes=line) as cluster:
        yield cluster


@pytest.fixture
def launch_members(tmp_path: Path) -> Iterator[Launch]:
    """Start members of any kinds for one test, which says which kinds: not once for each kind under test."""
    with launcher(REFERENCE, tmp_path) as launch:
        yield launch


@pytest.fixture(params=[(0, 1), (1, 0)], ids=["to the second", "to the first"])
def ends(request: pytest.FixtureRequest) -> tuple[int, int]:
    """Where the publisher is, and where the subscriber is."""
    ends: tuple[int, int] = request.param
    return ends
