"""Whether an archive has what its stream has.

For each stretch of sequences the files are read and compared with their digests, and the stream is read and
compared with the files:

* Every message of the stream that the manifest says is archived is in a file, with equal content.
* A message that is in a file and not in the stream was deleted there since, or expired; these are counted.
* A sequence that is in neither was never there, or gone before it was archived.

What was compared without a complaint is noted in the manifest, for `--purge-archived`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from gnats.archive.digest import Digest
from gnats.archive.errors import ArchiveError
from gnats.archive.files import batches, clusters, sequences
from gnats.archive.jobs.engine import Engine
from gnats.archive.jobs.plan import not_rolled_back, origin_of, runs
from gnats.archive.manifest import STAGING, Change, Entry, Manifest, Origin, State
from gnats.archive.ranges import Ranges
from gnats.archive.reading.source import Selection, Snapshot, StreamSource
from gnats.archive.storage import shown
from gnats.archive.target import Target

ATTEMPTS = 10
"""How often what another job has compacted meanwhile is looked at again."""


@dataclass(frozen=True)
class Stretch:
    """Sequences to be compared: files, and the part of the stream that has these sequences (None: not
    compared)."""

    origin: Origin
    first_seq: int
    last_seq: int
    covered: tuple[tuple[int, int], ...]
    entries: tuple[Entry, ...]
    snapshot: Snapshot | None


@dataclass(frozen=True)
class Compared:
    """How many messages a stretch of the archive has, how many of them the stream does not have any more,
    and what is wrong."""

    rows: int
    gone: int
    problems: tuple[str, ...]


@dataclass
class Verified:
    """What a run has found."""

    manifest: Manifest
    state: State
    rows: int = 0
    gone: int = 0
    unarchived: int = 0
    """Messages that the stream has, and that were never to be archived, or have come since."""
    good: Ranges = field(default_factory=Ranges)
    """What was compared with the stream, without a complaint."""
    problems: list[str] = field(default_factory=list)


def stretches(state: State, snapshot: Snapshot | None, wanted: Ranges) -> Iterator[Stretch]:
    """What is wanted, cut between files."""
    ends = [max(entry.last_seq for entry in cluster) for cluster in clusters(state.entries)]
    groups = list(clusters(state.entries))
    for first, last in wanted:
        start = first
        inside = [
            (group, end)
            for group, end in zip(groups, ends, strict=True)
            if first <= end and group[0].first_seq <= last
        ]
        for at, (group, end) in enumerate(inside):
            stop = last if at == len(inside) - 1 else end
            yield _stretch(state, snapshot, start, max(stop, start), group)
            start = stop + 1
        if not inside:
            yield _stretch(state, snapshot, first, last, [])


def _stretch(state: State, snapshot: Snapshot | None, first: int, last: int, entries: list[Entry]) -> Stretch:
    first = min([first, *(entry.first_seq for entry in entries)])
    last = max([last, *(entry.last_seq for entry in entries)])
    part = snapshot and snapshot.part(snapshot.select(Selection(first_seq=first, last_seq=last)))
    # a file may have been compacted with one of messages that have come since
    covered = tuple(state.covered.within(first, min(last, snapshot.last_seq) if snapshot else last))
    return Stretch(state.origin, first, last, covered, tuple(entries), part)


def compare(stretch: Stretch, target: Target) -> Compared:
    """Compares a stretch. Nothing is raised: what cannot be read is a problem."""
    try:
        return _compare(stretch, Manifest(target.open(), stretch.origin))
    except ArchiveError as exc:
        return Compared(0, 0, (str(exc),))


def _compare(stretch: Stretch, manifest: Manifest) -> Compared:
    problems: list[str] = []
    found: dict[Entry, tuple[np.ndarray, str]] = {}
    if stretch.snapshot is not None:
        found = _of_stream(stretch, manifest, problems)
    rows = gone = 0
    for entry in stretch.entries:
        there, digest = found.get(entry, (None, ""))
        rows += entry.rows
        same = Digest()
        for batch in batches(manifest, entry):
            if there is not None and len(there) != entry.rows:
                mask = np.isin(batch.column("sequence").to_numpy(), there, assume_unique=True)
                same.update(batch.filter(pa.array(mask)))
        if there is None:
            continue
        gone += entry.rows - len(there)
        archived = entry.digest if len(there) == entry.rows else same.hex()
        if digest != archived:
            where = f"{shown(manifest.storage.url)}/{manifest.path(entry.path)}"
            problems.append(f"{where}: its messages are not those of the stream")
    return Compared(rows, gone, tuple(problems))


def _of_stream(
    stretch: Stretch, manifest: Manifest, problems: list[str]
) -> dict[Entry, tuple[np.ndarray, str]]:
    """For each file, which of its messages the stream has, and their digest there."""
    assert stretch.snapshot is not None
    archived = {entry: sequences(manifest, entry).to_numpy() for entry in stretch.entries}
    digests = {entry: Digest() for entry in stretch.entries}
    there: dict[Entry, list[np.ndarray]] = {entry: [] for entry in stretch.entries}
    missing = Ranges()
    scan = stretch.snapshot.scan(Selection(first_seq=stretch.first_seq, last_seq=stretch.last_seq))
    covered = Ranges(stretch.covered)
    for batch in scan.reader:
        values = batch.column("sequence").to_numpy()
        left = np.ones(len(values), bool)
        for entry, sequences_ in archived.items():
            mask = np.isin(values, sequences_, assume_unique=True)
            left &= ~mask
            there[entry].append(values[mask])
            digests[entry].update(batch if mask.all() else batch.filter(pa.array(mask)))
        if left.any():
            missing.add(covered.both(runs(pa.array(values[left]))))
    path = stretch.snapshot.stream.path
    problems += [f"{path}: messages {a} to {b} are not in the archive" for a, b in missing]
    problems += [f"{path}: {damage}: cannot be compared" for damage in scan.damage]
    return {
        entry: (np.concatenate(values) if values else np.array([], np.int64), digests[entry].hex())
        for entry, values in there.items()
    }


def strays(manifest: Manifest) -> list[str]:
    """Parquet files in the archive's directory that are no part of it: whoever lists it would take them for
    such."""
    tree = manifest.storage.tree(manifest.directory)
    state = manifest.load()
    return sorted(
        path
        for path in tree
        if path.endswith(".parquet")
        and not path.startswith(STAGING)
        and path not in state.files.keys() | state.retired
        and manifest.storage.exists(manifest.path(path))
    )


def verify(
    target: Target,
    manifest: Manifest,
    source: StreamSource | None,
    engine: Engine,
    *,
    only_present: bool = False,
) -> Verified:
    """Compares the archive of a stream with the stream; with its own digests only, without a source.

    With only_present what the stream does not have any more, before its first message, is left out. Raises
    ArchiveError when the manifest cannot be read.
    """
    state = manifest.recover()
    # taken after that: what other jobs archive from now on is not looked at
    snapshot = None if source is None else source.snapshot(limits=False)
    if snapshot is not None:
        manifest = Manifest(manifest.storage, origin_of(snapshot))
        manifest.check_origin(state)
    done = Verified(manifest, state)
    done.problems += [
        f"{shown(manifest.storage.url)}/{manifest.path(path)}: is not in the manifest"
        for path in strays(manifest)
    ]
    wanted = Ranges(state.covered)
    if snapshot is not None:
        if only_present:
            wanted = wanted.within(snapshot.first_seq, snapshot.last_seq)
        try:
            state = not_rolled_back(snapshot, manifest, state)
        except ArchiveError as exc:
            done.problems.append(str(exc))
            return done
        done.unarchived = _unarchived(snapshot, state)
    for _ in range(ATTEMPTS):
        again = Ranges()
        work = list(stretches(state, snapshot, wanted))
        results = engine.run(partial(compare, target=target), work, lambda count: None)
        state = manifest.load()
        for stretch, result in zip(work, results, strict=True):
            if result.problems and any(state.files.get(entry.path) != entry for entry in stretch.entries):
                again.add(stretch.covered)  # another job has compacted it meanwhile
                continue
            done.rows += result.rows
            done.gone += result.gone
            done.problems += result.problems
            if not result.problems:
                done.good.add(stretch.covered)
        if not len(again):
            break
        wanted = again
    else:
        done.problems.append(f"{manifest.directory}: other jobs compact it again and again")
    if snapshot is not None and len(done.good.without(state.verified)):
        state = manifest.commit(Change("verify", uuid.uuid4().hex, verified=tuple(done.good)))
    done.state = state
    return done


def _unarchived(snapshot: Snapshot, state: State) -> int:
    """How many messages of the stream are neither archived nor lost to damage."""
    known = Ranges(state.covered)
    known.add((each.first_seq, each.last_seq) for each in state.lost)
    count = 0
    for first, last in Ranges([(1, snapshot.last_seq)]).without(known):
        scan = snapshot.scan(Selection(first, last))
        count += sum(batch.num_rows for batch in scan.reader)
    return count


def purgeable(verified: Verified, first_seq: int) -> int:
    """Up to which sequence everything from first_seq on is archived and was verified now; below first_seq:
    nothing is."""
    for first, last in verified.state.covered.both(verified.good):
        if first <= first_seq <= last:
            return last
    return first_seq - 1
