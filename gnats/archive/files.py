"""Read the files of an archive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gnats.archive.digest import Digest
from gnats.archive.errors import ArchiveError
from gnats.archive.manifest import Entry, Manifest
from gnats.archive.storage import first_line, shown
from gnats.archive.writer import FILE_SCHEMA

BATCH_ROWS = 16384
_SEQUENCE = FILE_SCHEMA.get_field_index("sequence")  # also its index among the leaves: those before are flat


class BadFile(ArchiveError):
    """A file of an archive differs from the manifest."""


@contextmanager
def _opened(manifest: Manifest, entry: Entry) -> Iterator[pq.ParquetFile]:
    """Open a file. Raises BadFile, also for errors within the context."""
    try:
        with (
            manifest.storage.open_input(manifest.find(entry)) as source,
            pq.ParquetFile(source, page_checksum_verification=True) as file,
        ):
            yield file
    except manifest.storage.faults as exc:
        raise _bad(manifest, entry, first_line(exc)) from None
    except UnicodeDecodeError as exc:  # a damaged name in the footer
        raise _bad(manifest, entry, str(exc)) from None


def _agrees(batch: pa.RecordBatch) -> bool:
    """Whether redundant columns agree: the digest covers only one of each pair."""
    us = batch["time"].cast(pa.int64()).to_numpy()
    sizes = pc.binary_length(batch["payload"]).to_numpy()
    times_agree = (us == batch["time_ns"].to_numpy() // 1000).all()
    return bool(times_agree and (sizes == batch["size"].to_numpy()).all())


def batches(manifest: Manifest, entry: Entry, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a file, in FILE_SCHEMA. Raises BadFile, at the latest at the file's end."""
    digest = Digest()
    with _opened(manifest, entry) as file:
        if not file.schema_arrow.remove_metadata().equals(FILE_SCHEMA):
            raise _bad(manifest, entry, "other columns than an archive has")
        for batch in file.iter_batches(rows, use_threads=False):
            digest.update(batch)
            if not _agrees(batch):
                raise _bad(manifest, entry, "a time or a size that is not its message's")
            yield batch
    if (digest.rows, digest.hex()) != (entry.rows, entry.digest):
        raise _bad(manifest, entry, "its messages are not those that were archived")


def sequences(manifest: Manifest, entry: Entry) -> pa.ChunkedArray:
    """Return the sequences in a file. Raises BadFile."""
    with _opened(manifest, entry) as file:
        return file.read(["sequence"], use_threads=False).column(0)


def times(manifest: Manifest, entry: Entry, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (sequences, times in ns) of a file's row groups that may have sequences from first to last.

    Raises BadFile.
    """
    with _opened(manifest, entry) as file:
        groups = []
        for group in range(file.num_row_groups):
            about = file.metadata.row_group(group).column(_SEQUENCE).statistics
            if about.min <= last and about.max >= first:
                groups.append(group)
        table = file.read_row_groups(groups, ["sequence", "time_ns"], use_threads=False)
        return table["sequence"].to_numpy(), table["time_ns"].to_numpy()


def _bad(manifest: Manifest, entry: Entry, why: str) -> BadFile:
    return BadFile(f"{shown(manifest.storage.url)}/{manifest.path(entry.path)}: {why}")


def clusters(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Yield groups of files with overlapping ranges of sequences, by sequence; most groups are one file.

    Ranges overlap when times in a stream do not ascend with sequences, and when lost messages were found
    again."""
    group: list[Entry] = []
    for entry in sorted(entries, key=lambda each: (each.first_seq, each.last_seq)):
        if group and entry.first_seq > max(each.last_seq for each in group):
            yield group
            group = []
        group.append(entry)
    if group:
        yield group
