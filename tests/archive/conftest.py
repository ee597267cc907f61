"""Fixtures of the archive's tests: a stream in a store, and a directory for its archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from .stores import Writing


@pytest.fixture
def orders(tmp_path: Path) -> Writing:
    return Writing(tmp_path / "store")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"
