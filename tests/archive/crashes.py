"""Crashes of a job: an exception ends it at one of the changes that it makes in its target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gnats.archive.storage import LocalStorage

from .stores import ORDERS, listed, manifest_of, parquet_files, plain


class Crash(BaseException):
    """The job ends here: nothing that it does afterwards reaches the disk."""


STEPS = ("open_output", "sync", "create", "move", "delete", "delete_tree")


class Failing:
    """Ends the job before or after the nth change of the target; `count` counts the changes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.dead = False
        self.at: tuple[int, bool] | None = None
        for name in STEPS:
            monkeypatch.setattr(LocalStorage, name, self._wrap(getattr(LocalStorage, name)))

    def arm(self, step: int, after: bool) -> None:
        self.count, self.dead, self.at = 0, False, (step, after)

    def disarm(self) -> None:
        self.at, self.dead = None, False

    def _wrap(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any) -> Any:
            if self.dead:
                raise Crash
            self.count += 1
            if self.at == (self.count, False):
                self.dead = True
                raise Crash
            result = method(*args)
            if self.at == (self.count, True):
                self.dead = True
                raise Crash
            return result

        return step


def consistent(out: Path, messages: dict[int, tuple[str, int, bytes]]) -> dict[int, tuple[str, int, bytes]]:
    """Require that an archive's files are committed and whole, with each message once; return the rows."""
    manifest = manifest_of(out)
    state = manifest.load()
    for path in parquet_files(out):
        assert str(path.relative_to(out / ORDERS)) in state.files.keys() | state.retired
    shown = plain(listed(out))
    assert shown.items() <= messages.items()
    for entry in state.files.values():  # every file in the manifest is there
        table = pq.read_table(out / manifest.find(entry), partitioning=None)
        assert (table.num_rows, table.column("sequence")[0].as_py()) == (entry.rows, entry.first_seq)
    return shown
