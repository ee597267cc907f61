"""Verify that an archive agrees with its stream.

For each stretch of sequences, read the files and compare them with their digests; read the stream and compare
it with the files:

* Each message of the stream that the manifest says is archived must be in a file, with equal content.
* A message in a file but not in the stream was deleted or has expired since; these are counted.
* A sequence in neither had no message, or lost it before it was archived.

The manifest notes the sequences without problems, for `--purge-archived`.
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
"""Attempts at stretches whose files other jobs compact meanwhile."""


@dataclass(frozen=True)
class Stretch:
    """A range of sequences to compare: its files, and its part of the stream (None: compare digests only)."""

    origin: Origin
    first_seq: int
    last_seq: int
    covered: tuple[tuple[int, int], ...]
    entries: tuple[Entry, ...]
    snapshot: Snapshot | None


@dataclass(frozen=True)
class Compared:
    """The result for a range: archived messages, messages that the stream no longer has, and problems."""

    rows: int
    gone: int
    problems: tuple[str, ...]


@dataclass
class Verified:
    """The result of a run."""

    manifest: Manifest
    state: State
    rows: int = 0
    gone: int = 0
    unarchived: int = 0
    """Messages of the stream that were not selected for archiving, or are newer."""
    good: Ranges = field(default_factory=Ranges)
    """Sequences that were compared with the stream, without problems."""
    problems: list[str] = field(default_factory=list)


def stretches(state: State, snapshot: Snapshot | None, wanted: Ranges) -> Iterator[Stretch]:
    """Cut the wanted sequences into stretches, between files."""
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
    # A file may have been compacted with a newer one, whose messages are not in the snapshot.
    covered = tuple(state.covered.within(first, min(last, snapshot.last_seq) if snapshot else last))
    return Stretch(state.origin, first, last, covered, tuple(entries), part)


def compare(stretch: Stretch, target: Target) -> Compared:
    """Compare a stretch. Raises nothing: unreadable files and blocks are problems."""
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
    """Return for each file which of its messages the stream has, and the digest of these in the stream."""
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
    """Return Parquet files in the archive's directory that are not part of it: listings include them."""
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
    """Compare the archive of a stream with the stream; without a source, only with its own digests.

    With only_present, leave out sequences before the stream's first message. Raises ArchiveError when the
    manifest cannot be read.
    """
    state = manifest.recover()
    # After recover(): messages that other jobs archive from now on are not compared.
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
                again.add(stretch.covered)  # another job has compacted the files meanwhile
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
    """Count the messages of the stream that are neither archived nor lost to damage."""
    known = Ranges(state.covered)
    known.add((each.first_seq, each.last_seq) for each in state.lost)
    count = 0
    for first, last in Ranges([(1, snapshot.last_seq)]).without(known):
        scan = snapshot.scan(Selection(first, last))
        count += sum(batch.num_rows for batch in scan.reader)
    return count


def purgeable(verified: Verified, first_seq: int) -> int:
    """Return the last sequence up to which all from first_seq on are archived and have been verified now.

    A result below first_seq: none are.
    """
    for first, last in verified.state.covered.both(verified.good):
        if first <= first_seq <= last:
            return last
    return first_seq - 1
