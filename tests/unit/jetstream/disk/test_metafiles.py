"""Descriptions of streams and consumers: a crash while one is written leaves a whole one, or none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gnats.jetstream.disk.encryption import Keys, MetaError
from gnats.jetstream.disk.metafiles import Undo, read_consumer_meta, write_consumer_meta, write_stream_meta
from gnats.jetstream.settings.config import ConsumerConfig, StreamConfig
from gnats.options.values.jetstream import JetStreamOptions

KEYS = Keys(JetStreamOptions())
OLD = ConsumerConfig(durable_name="C", description="old")
NEW = ConsumerConfig(durable_name="C", description="new")


class Cut(Exception):
    """Stands for the end of the process."""


def write(directory: Path, config: ConsumerConfig, *, sync: bool = False) -> None:
    write_consumer_meta(directory, "S", "C", config, 1, sync=sync)


def found(directory: Path) -> str:
    return str(read_consumer_meta(directory, KEYS, "A", "S").config.description)


@contextmanager
def cut_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> Iterator[None]:
    """Raise Cut at the step with this number, counting from 0, of those that change files or directories."""
    left = steps

    def counted(call: Any) -> Any:
        def step(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left == 0:
                raise Cut
            left -= 1
            return call(*args, **kwargs)

        return step

    with monkeypatch.context() as patched:
        for name in ("open", "write"):
            patched.setattr(os, name, counted(getattr(os, name)))
        for name in ("rename", "mkdir"):
            patched.setattr(Path, name, counted(getattr(Path, name)))
        yield


@pytest.mark.parametrize("sync", [False, True])
def test_a_replacement_that_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: bool
) -> None:
    for steps in range(100):
        where = tmp_path / str(steps) / "C"
        write(where, OLD)
        try:
            with cut_after(monkeypatch, steps):
                write(where, NEW, sync=sync)
        except Cut:
            assert found(where) in ("old", "new")
            assert found(where) == found(where)
            write(where, NEW, sync=sync)
            assert found(where) == "new"
            continue
        assert found(where) == "new"
        return
    raise AssertionError("it does not end")


@pytest.mark.parametrize("sync", [False, True])
def test_the_first_that_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: bool) -> None:
    for steps in range(100):
        where = tmp_path / str(steps) / "C"
        where.parent.mkdir()
        try:
            with cut_after(monkeypatch, steps):
                write(where, NEW, sync=sync)
        except Cut:
            try:
                assert found(where) == "new"
            except MetaError:
                assert not (where / "meta.inf").exists()
            write(where, NEW, sync=sync)
            assert found(where) == "new"
            continue
        assert found(where) == "new"
        return
    raise AssertionError("it does not end")


@pytest.mark.parametrize("replaced", [False, True])
def test_it_is_made_durable_only_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    if replaced:
        write(tmp_path / "C", OLD)
        write(tmp_path / "D", OLD)
    write(tmp_path / "C", NEW)
    assert synced == []
    write(tmp_path / "D", NEW, sync=True)
    assert [Path(path).name.split(".")[:2] for path in synced].count(["meta", "inf"]) == 1
    assert [Path(path).name.split(".")[:2] for path in synced].count(["meta", "sum"]) == 1
    assert synced[-1] == str(tmp_path / "D")


def test_what_is_undone_is_as_it_was(tmp_path: Path) -> None:
    stream = tmp_path / "account" / "streams" / "S"
    undo = Undo(stream)
    write_stream_meta(stream, StreamConfig(name="S", description="refused"), 1)
    (stream / "msgs").mkdir()
    (stream / "msgs" / "1.blk").write_bytes(b"block")
    undo.undo()
    assert not list(tmp_path.iterdir())
    undo.undo()  # the second call has no effect
    write_stream_meta(stream, StreamConfig(name="S", description="old"), 1)
    (stream / "msgs").mkdir()
    before = {path.name: path.read_bytes() for path in stream.iterdir() if path.is_file()}
    undo = Undo(stream)
    write_stream_meta(stream, StreamConfig(name="S", description="refused"), 1)
    (stream / "meta.key").write_bytes(b"key")
    (stream / "meta.inf.new").write_bytes(b"interrupted")
    undo.undo()
    assert {path.name: path.read_bytes() for path in stream.iterdir() if path.is_file()} == before
    assert (stream / "msgs").is_dir()
