"""Plan a run of the archive: cut the sequences that are not archived into tasks of whole blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from gnats.archive.errors import ArchiveError
from gnats.archive.files import times
from gnats.archive.manifest import Entry, Lost, Manifest, Origin, State
from gnats.archive.ranges import Ranges
from gnats.archive.reading.snapshot import check_gone
from gnats.archive.reading.source import Damage, Selection, Snapshot
from gnats.archive.target import Target
from gnats.archive.writer import Layout, Writer
from gnats.go.text import SECOND, rfc3339
from gnats.store.index.seqset import SequenceSet


@dataclass(frozen=True)
class Task:
    """Blocks whose messages from first_seq to last_seq one process writes.

    `within` is the range that was cut into tasks; of it, the blocks have only first_seq to last_seq.
    """

    origin: Origin
    snapshot: Snapshot
    first_seq: int
    last_seq: int
    within: tuple[int, int]

    @property
    def size(self) -> int:
        """Bytes of the blocks."""
        return sum(block.size for block in self.snapshot.blocks)


@dataclass(frozen=True)
class Result:
    """The files that a task has written. They do not belong to the archive yet."""

    first_seq: int
    last_seq: int
    entries: tuple[Entry, ...]
    lost: tuple[Lost, ...]
    damage: tuple[str, ...]
    failed: str = ""
    """The error in one line, when nothing was written."""


def origin_of(snapshot: Snapshot) -> Origin:
    """Return the identity of a snapshot's stream."""
    created = rfc3339(snapshot.created) if snapshot.created else ""
    return Origin(snapshot.stream.account, snapshot.stream.name, created)


def sequences_of(snapshot: Snapshot, start_ns: int | None, end_ns: int | None) -> tuple[int, int]:
    """Return the sequences (first, last) of a range of times.

    From the first message at or after its start to the one before the first message at or after its end.
    """
    first = 1 if start_ns is None else _first_since(snapshot, start_ns)
    last = snapshot.last_seq if end_ns is None else _first_since(snapshot, end_ns) - 1
    return first, last


def _first_since(snapshot: Snapshot, ns: int) -> int:
    for batch in snapshot.scan(Selection(start_ns=ns), batch_rows=1024).reader:
        if batch.num_rows:
            return int(batch.column("sequence")[0].as_py())
    return snapshot.last_seq + 1


def check_not_rolled_back(snapshot: Snapshot, manifest: Manifest, state: State) -> None:
    """Raise ArchiveError when the stream's messages are not those that were archived.

    Compares the last archived message that the stream still has, and finds archived sequences after it whose
    messages are newer than the archive. (The stream was restored from a backup, or its server has lost
    unsynced messages.)
    """
    where = f"its archive {manifest.directory}"
    at = _check_last_archived(snapshot, manifest, state, where)
    if not state.archived_at:
        return
    since = state.archived_at + SECOND  # archived_at is in whole seconds
    for first, last in state.covered.within(at + 1, snapshot.last_seq):
        for batch in snapshot.scan(Selection(first, last, start_ns=since), batch_rows=1).reader:
            if batch.num_rows:
                raise ArchiveError(
                    f"message {batch.column('sequence')[0]} of {snapshot.stream.path} has come after {where} "
                    "had its sequence: the stream was rolled back, and needs a target of its own"
                )


def _check_last_archived(snapshot: Snapshot, manifest: Manifest, state: State, where: str) -> int:
    """Return the last archived message that the stream has, 0: none. Raises ArchiveError if it differs."""
    for entry in reversed(state.entries):
        selection = Selection(entry.first_seq, entry.last_seq)
        for block in reversed(snapshot.select(selection)):
            table = snapshot.scan(selection, [block]).reader.read_all()
            if not len(table):
                continue
            here = table["sequence"].to_numpy()
            archived, archived_ns = times(manifest, entry, here[0], here[-1])
            both, at, archived_at = np.intersect1d(here, archived, assume_unique=True, return_indices=True)
            others = both[table["time_ns"].to_numpy()[at] != archived_ns[archived_at]]
            if len(others):
                raise ArchiveError(
                    f"message {others[0]} of {snapshot.stream.path} is another one than in {where}: "
                    "the stream was rolled back, and needs a target of its own"
                )
            if len(both):
                return int(both[-1])
    return 0


def not_rolled_back(snapshot: Snapshot, manifest: Manifest, state: State) -> State:
    """Check that the stream has not lost archived messages at its end; see check_not_rolled_back().

    Returns `state`, which is older than the snapshot, or a later state. Raises ArchiveError.
    """
    if state.last_seq > snapshot.last_seq:
        raise ArchiveError(
            f"{snapshot.stream.path} ends at sequence {snapshot.last_seq}, its archive {manifest.directory} "
            f"at {state.last_seq}: it was rolled back, and needs a target of its own"
        )
    while True:
        try:
            check_not_rolled_back(snapshot, manifest, state)
        except ArchiveError:  # maybe because a file was compacted meanwhile
            before, state = state, manifest.load()
            if state.version == before.version:
                raise
        else:
            return state


def missing(state: State, first: int, last: int, retry_lost: bool = False) -> Ranges:
    """Return the sequences from `first` to `last` that are not archived; retry_lost: also damaged ones."""
    wanted = Ranges([(first, last)]).without(state.covered)
    if not retry_lost:
        wanted = wanted.without((each.first_seq, each.last_seq) for each in state.lost)
    return wanted


def tasks(origin: Origin, snapshot: Snapshot, wanted: Ranges, task_bytes: int) -> Iterator[Task]:
    """Cut the wanted sequences into tasks of about task_bytes, at the ends of blocks.

    A range without a block is a task, too: nothing is written, and its sequences count as archived.
    """
    for first, last in wanted:
        blocks = snapshot.select(Selection(first_seq=first, last_seq=last))
        start, at, size = first, 0, 0
        for end, (block, following) in enumerate(pairwise(blocks), 1):
            size += block.size
            if size < task_bytes or block.last_seq is None or following.first_seq is None:
                continue
            cut = following.first_seq - 1
            if not max(start, block.last_seq) <= cut < last:
                continue
            yield Task(origin, snapshot.part(blocks[at:end]), start, cut, (first, last))
            start, at, size = cut + 1, end, 0
        yield Task(origin, snapshot.part(blocks[at:]), start, last, (first, last))


def run_task(task: Task, target: Target, job: str, layout: Layout) -> Result:
    """Write the files of a task. The result contains an ArchiveError's text."""
    try:
        return _run(task, target, job, layout)
    except ArchiveError as exc:
        return Result(task.first_seq, task.last_seq, (), (), (), failed=str(exc))


def _run(task: Task, target: Target, job: str, layout: Layout) -> Result:
    nothing = Result(task.first_seq, task.last_seq, (), (), ())
    if not task.snapshot.blocks:
        return nothing
    manifest = Manifest(target.open(), task.origin)
    first, last = task.within
    scan = task.snapshot.scan(Selection(first_seq=first, last_seq=last), batch_bytes=layout.batch_bytes)
    with Writer(manifest, job, layout) as writer:
        for batch in scan.reader:
            if not batch.num_rows:
                continue
            block = batch.column("block")[0].as_py()
            for sequence in (batch.column("sequence")[0].as_py(), batch.column("sequence")[-1].as_py()):
                if not task.first_seq <= sequence <= task.last_seq:
                    raise ArchiveError(
                        f"{task.snapshot.stream.path}: sequence {sequence} is in or behind block "
                        f"{block}, where {task.first_seq} to {task.last_seq} are expected"
                    )
            writer.write(batch)
        check_gone(task.snapshot, scan.vanished)
    return replace(
        nothing,
        entries=tuple(writer.entries),
        lost=tuple(lost_to(scan.damage, task)) if scan.damage else (),
        damage=tuple(map(str, scan.damage)),
    )


def lost_to(damage: Sequence[Damage], task: Task) -> Iterator[Lost]:
    """Yield the sequences of a task that damage has lost: neither readable nor known to have been deleted.

    When the damage does not name its sequences, they are all those between the neighbouring blocks.
    """
    blocks = task.snapshot.blocks
    deleted, _ = SequenceSet.decode(task.snapshot.deleted)
    for each in damage:
        at = next((i for i, block in enumerate(blocks) if block.index == each.block), None)
        if at is None:
            continue
        block = blocks[at]
        first = each.first_seq or (block.after or 0) + 1
        last = each.last_seq or (block.before or task.last_seq + 1) - 1
        first, last = max(task.first_seq, first), min(task.last_seq, last)
        there = Ranges()
        for batch in task.snapshot.scan(Selection(first_seq=first, last_seq=last)).reader:
            there.add(runs(batch.column("sequence")))
        for gap_first, gap_last in Ranges([(first, last)]).without(there):
            # Cut deleted sequences off the ends of a gap; those in the middle make no difference.
            gap_first = deleted.next_absent(gap_first)
            while gap_last >= gap_first and gap_last in deleted:
                gap_last -= 1
            if gap_first <= gap_last:
                yield Lost(gap_first, gap_last, str(each))


def runs(sequences: pa.Array | pa.ChunkedArray) -> list[tuple[int, int]]:
    """Convert ascending sequences to ranges without gaps."""
    values = sequences.to_numpy()
    if not len(values):
        return []
    ends = np.flatnonzero(np.diff(values) != 1)
    firsts = values[np.concatenate(([0], ends + 1))]
    lasts = values[np.concatenate((ends, [len(values) - 1]))]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))
