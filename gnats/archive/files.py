"""Reading the files of an archive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from gnats.archive.digest import Digest
from gnats.archive.errors import ArchiveError
from gnats.archive.manifest import Entry, Manifest
from gnats.archive.target import first_line, shown
from gnats.archive.writer import FILE_SCHEMA

BATCH_ROWS = 16384


class BadFile(ArchiveError):
    """A file of an archive is not what the manifest says."""


def batches(manifest: Manifest, entry: Entry, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """The messages of a file, of FILE_SCHEMA. Raises BadFile, at the latest at its end."""
    path = manifest.find(entry)
    digest = Digest()
    try:
        with manifest.storage.open_input(path) as source, pq.ParquetFile(source) as file:
            if not file.schema_arrow.remove_metadata().equals(FILE_SCHEMA):
                raise _bad(manifest, entry, "other columns than an archive has")
            for batch in file.iter_batches(rows, use_threads=False):
                digest.update(batch)
                yield batch
    except manifest.storage.faults as exc:
        raise _bad(manifest, entry, first_line(exc)) from None
    if (digest.rows, digest.hex()) != (entry.rows, entry.digest):
        raise _bad(manifest, entry, "its messages are not those that were archived")


def sequences(manifest: Manifest, entry: Entry) -> pa.ChunkedArray:
    """The sequences in a file. Raises BadFile."""
    try:
        with manifest.storage.open_input(manifest.find(entry)) as source, pq.ParquetFile(source) as file:
            return file.read(["sequence"], use_threads=False).column(0)
    except manifest.storage.faults as exc:
        raise _bad(manifest, entry, first_line(exc)) from None


def _bad(manifest: Manifest, entry: Entry, why: str) -> BadFile:
    return BadFile(f"{shown(manifest.storage.url)}/{manifest.path(entry.path)}: {why}")


def clusters(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Files whose ranges of sequences overlap, together; the others, each by itself; by sequence.

    Ranges overlap where a stream's times do not go up with its sequences, and where lost ones were found
    again."""
    group: list[Entry] = []
    for entry in sorted(entries, key=lambda each: (each.first_seq, each.last_seq)):
        if group and entry.first_seq > max(each.last_seq for each in group):
            yield group
            group = []
        group.append(entry)
    if group:
        yield group
