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
    encode_entry,
    encode_snapshot,
)
from gnats.jetstream.cluster.nodes import Nodes
from gnats.jetstream.control import metagroup
from gnats.jetstream.control.metagroup import MetaGroup
from gnats.jetstream.control.raftgroup import RaftGroup
from gnats.jetstream.control.shared import Shared
from gnats.jetstream.settings.config import FILE, StreamConfig
from gnats.options.values.jetstream import JetStreamOptions

INDEX = 3
STREAM = StreamAssignment.of(
    StreamConfig(name="S", storage=FILE),
    client=ClientInfo(acc="A"),
    created="2026-01-01T00:00:00Z",
    group=entries.RaftGroup(name="G", peers=("me",), store=FILE),
    sync="sync",
)
UPDATE = encode_entry(Op.UPDATE_STREAM, STREAM)


class Member:
    """A member of the meta group with one stream, which keeps its snapshots and its errors."""

    def __init__(self) -> None:
        self.snapshots: list[tuple[int, bytes]] = []
        self.errors: list[str] = []
        self.options = JetStreamOptions()
        self.snapshot_index, self.log_bytes = 0, 1000
        self.retired = False
        shared = SimpleNamespace(
            log=SimpleNamespace(error=self.errors.append),
            options=lambda: SimpleNamespace(jetstream=self.options),
        )
        self.meta = MetaGroup(
            cast(Shared, shared), cast(Nodes, None), "me", lambda changes: None, lambda: None
        )
        log = SimpleNamespace(state=lambda: SimpleNamespace(bytes=self.log_bytes))
        node = SimpleNamespace(
            install_snapshot=self._install,
            files=SimpleNamespace(log=log),
            state=lambda: {
                "snapshot": self.snapshot_index,
                "doubted": 0,
                "leader": b"another",
                "catching_up": False,
                "pindex": INDEX,
                "applied": INDEX,
            },
        )
        group = SimpleNamespace(node=node, close=lambda: None, retire=self._retire)
        self.meta.group = cast(RaftGroup, group)
        self.meta.state.apply(Entry(Op.ASSIGN_STREAM, STREAM))
        self.meta._index = INDEX
        self.meta.recovered()
        self.meta.taken()  # it has caught up

    def _retire(self) -> None:
        self.retired = True

    def _install(self, index: int, data: bytes) -> bool:
        self.snapshots.append((index, data))
        return True

    def update(self, index: int) -> None:
        """Apply a record with an update of the stream."""
        self.meta.apply(index, [(metagroup.NORMAL, UPDATE)])

    async def compact(self) -> None:
        self.meta._compact()
        await self.compacted()

    async def compacted(self) -> None:
        """Wait for the end of a snapshot that is being made."""
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


async def test_many_changes_do_not_wait_for_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metagroup, "COMPACT_BYTES", 3 * len(UPDATE))
    monkeypatch.setattr(metagroup, "_COMPACT_PAUSE", 0)
    member = Member()
    for index in range(INDEX + 1, INDEX + 4):
        assert not member.meta._compacting
        member.update(index)
    member.update(INDEX + 4)
    await member.compacted()
    for index in range(INDEX + 5, INDEX + 7):
        member.update(index)
    await member.compacted()
    assert [index for index, _ in member.snapshots] == [INDEX + 3, INDEX + 6]
    monkeypatch.setattr(metagroup, "_COMPACT_PAUSE", 10**12)  # in times that the snapshot takes
    member.update(INDEX + 7)
    await member.compact()
    for index in range(INDEX + 8, INDEX + 20):
        member.update(index)
    assert not member.meta._compacting
    await member.meta.close()


@pytest.mark.parametrize(
    ("options", "compacts"),
    [
        ({}, True),
        ({"meta_compact": INDEX - 1}, True),
        ({"meta_compact": INDEX}, False),
        ({"meta_compact_size": 999}, True),
        ({"meta_compact_size": 1000}, False),
        ({"meta_compact": INDEX, "meta_compact_size": 999}, True),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
async def test_a_snapshot_waits_until_the_log_is_long(
    options: dict[str, int], compacts: bool, at_once: bool
) -> None:
    member = Member()
    member.options = JetStreamOptions(**options, meta_compact_sync=at_once)
    if compacts:
        await member.compact()
    else:
        member.meta._compact()
        assert not member.meta._compacting
    assert bool(member.snapshots) is compacts


@pytest.mark.parametrize("data", [b"\xff", b"\x00{", b"\x00{}"])
async def test_a_server_that_understands_no_more_stops_following(data: bytes) -> None:
    """What it would do from then on might differ from what the others do."""
    member = Member()
    before = member.meta.state.snapshot()
    member.meta.apply(INDEX + 1, [(metagroup.NORMAL, data)])
    assert member.retired
    assert "an entry is not understood" in member.meta.failure
    assert len(member.errors) == 1
    member.update(INDEX + 2)
    member.meta.restore(b"")
    assert member.meta.state.snapshot() == before
