"""Snapshots of the meta group: made aside from the loop, and never one that nobody can read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gnats.jetstream.cluster import entries
from gnats.jetstream.cluster.entries import (
    ClientInfo,
    Entry,
    Op,
    SnapshotStream,
    StreamAssignment,
    decode_snapshot,
    encode_snapshot,
)
from gnats.jetstream.cluster.nodes import Nodes
from gnats.jetstream.control import metagroup
from gnats.jetstream.control.metagroup import MetaGroup
from gnats.jetstream.control.raftgroup import RaftGroup
from gnats.jetstream.control.shared import Shared
from gnats.jetstream.settings.config import FILE, StreamConfig

INDEX = 3
STREAM = StreamAssignment.of(
    StreamConfig(name="S", storage=FILE),
    client=ClientInfo(acc="A"),
    created="2026-01-01T00:00:00Z",
    group=entries.RaftGroup(name="G", peers=("me",), store=FILE),
    sync="sync",
)


class Member:
    """A member of the meta group with one stream, which keeps its snapshots and its errors."""

    def __init__(self) -> None:
        self.snapshots: list[tuple[int, bytes]] = []
        self.errors: list[str] = []
        shared = SimpleNamespace(log=SimpleNamespace(error=self.errors.append))
        self.meta = MetaGroup(
            cast(Shared, shared), cast(Nodes, None), "me", lambda changes: None, lambda: None
        )
        node = SimpleNamespace(install_snapshot=self._install)
        self.meta.group = cast(RaftGroup, SimpleNamespace(node=node))
        self.meta.state.apply(Entry(Op.ASSIGN_STREAM, STREAM))
        self.meta._index = INDEX

    def _install(self, index: int, data: bytes) -> bool:
        self.snapshots.append((index, data))
        return True

    async def compact(self) -> None:
        self.meta._compact()
        assert self.meta._compacting
        await asyncio.wait([self.meta._compacting])
        await asyncio.sleep(0)  # its callbacks


async def test_a_long_snapshot_does_not_hold_up_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[Any] = []

    def encode(assigned: Iterable[SnapshotStream]) -> bytes:
        threads.append(threading.current_thread())
        return encode_snapshot(assigned)

    monkeypatch.setattr(metagroup, "encode_snapshot", encode)
    member = Member()
    await member.compact()
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()
    ((index, data),) = member.snapshots
    assert index == INDEX
    assert [each.assignment.name for each in decode_snapshot(data)] == [STREAM.name]
    assert not member.errors


async def test_a_snapshot_that_is_too_long_leaves_the_log_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "MOST_SNAPSHOT", 10)
    member = Member()
    await member.compact()
    assert not member.snapshots
    (error,) = member.errors
    assert "are more than 10" in error
