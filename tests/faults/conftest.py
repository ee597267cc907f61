"""The servers to kill: gnats in the event loop, and with I/O threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faults import Home
from support.servers import Kind, selected

STRESS = int(os.environ.get("GNATS_STRESS", "0"))
"""How many times as many kills, 0: the short form."""


@pytest.fixture(params=[kind for kind in selected() if not kind.is_reference], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    kind.find()
    return kind


@pytest.fixture
def home(kind: Kind, tmp_path: Path) -> Iterator[Home]:
    home = Home(kind, tmp_path)
    yield home
    home.kill()
