"""Merge small files of successive runs into large ones.

A job writes neighbouring files of one directory again as one file, checks them against their digests as it
reads them, and replaces them in one commit. Then it deletes the old files, and names the new one last: a
listing may lack these messages for a moment, and never has them twice."""

from __future__ import annotations

import posixpath
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from gnats.archive.errors import ArchiveError
from gnats.archive.files import batches, clusters
from gnats.archive.jobs.engine import Engine
from gnats.archive.manifest import Change, Entry, Manifest, Origin, Overlap, State, partition_of
from gnats.archive.storage import Storage
from gnats.archive.target import Target
from gnats.archive.writer import FILE_SCHEMA, Layout, Writer


@dataclass(frozen=True)
class Merge:
    """Files to merge into one."""

    origin: Origin
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Merged:
    """The merged file, or the reason why there is none."""

    entries: tuple[Entry, ...]
    failed: str = ""


@dataclass
class Compacted:
    """The result of a run: the number of files that it has replaced, and of the files that replace them."""

    manifest: Manifest
    state: State
    before: int = 0
    after: int = 0


def merges(state: State, file_bytes: int) -> Iterator[Merge]:
    """Yield neighbouring files to merge, which together are no larger than file_bytes."""
    directories = defaultdict(list)
    for entry in state.entries:
        directories[posixpath.dirname(entry.path)].append(entry)
    for entries in directories.values():
        group: list[Entry] = []
        size = 0
        for cluster in clusters(entries):
            more = sum(entry.file_bytes for entry in cluster)
            if group and size + more > file_bytes:
                if len(group) > 1:
                    yield Merge(state.origin, tuple(group))
                group, size = [], 0
            group += cluster
            size += more
        if len(group) > 1:
            yield Merge(state.origin, tuple(group))


def run_merge(merge: Merge, target: Target, job: str, layout: Layout) -> Merged:
    """Write the file of a merge. The result contains an ArchiveError's text."""
    try:
        manifest = Manifest(target.open(), merge.origin)
        layout = replace(layout, file_bytes=1 << 62, partition=partition_of(merge.entries[0]))
        with Writer(manifest, job, layout) as writer:
            for cluster in clusters(merge.entries):
                if len(cluster) == 1:
                    for batch in batches(manifest, cluster[0]):
                        writer.write(batch)
                    continue
                table = pa.Table.from_batches(
                    [batch for entry in cluster for batch in batches(manifest, entry)], FILE_SCHEMA
                )
                for batch in table.sort_by("sequence").combine_chunks().to_batches():
                    writer.write(batch)
    except ArchiveError as exc:
        return Merged((), str(exc))
    if sum(entry.rows for entry in writer.entries) != sum(entry.rows for entry in merge.entries):
        return Merged((), f"{merge.origin.directory}: messages got lost between files")
    return Merged(tuple(writer.entries))


def compact(
    storage: Storage, target: Target, manifest: Manifest, engine: Engine, layout: Layout
) -> Compacted:
    """Compact the archive of a stream. Raises ArchiveError.

    When another job replaces the same files at the same time, only one of the two commits.
    """
    job = uuid.uuid4().hex
    done = Compacted(manifest, manifest.recover(own=job))
    wanted = list(merges(done.state, layout.file_bytes))
    if not wanted:
        return done
    function = partial(run_merge, target=target, job=job, layout=layout)
    try:
        merged = engine.run(function, wanted, lambda count: None)
    except BaseException:
        with suppress(ArchiveError):  # else the next job deletes the files
            manifest.sweep(done.state, own=job)
        raise
    if failed := [each.failed for each in merged if each.failed]:
        manifest.sweep(done.state, own=job)
        raise ArchiveError(failed[0])
    new = tuple(_renamed(entry, done.state, job) for each in merged for entry in each.entries)
    old = tuple(entry.path for merge in wanted for entry in merge.entries)
    try:
        done.state = manifest.commit(Change("compact", job, add=new, remove=old))
    except Overlap as overlap:
        manifest.sweep(manifest.load(), own=job)
        raise ArchiveError(f"{manifest.directory}: {overlap}") from None
    done.before, done.after = len(old), len(new)
    done.state = manifest.retire(done.state, job)
    manifest.publish(done.state, new)
    manifest.sweep(done.state, own=job)
    return done


def _renamed(entry: Entry, state: State, job: str) -> Entry:
    """Give a merged file a unique name, when another file had the same first and last sequence."""
    if entry.path not in state.files.keys() | state.retired:
        return entry
    return replace(entry, path=f"{entry.path.removesuffix('.parquet')}-{job[:8]}.parquet")
