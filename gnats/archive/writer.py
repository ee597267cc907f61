"""Write batches of messages to Parquet files, inside a task.

A file has the messages of one day (or hour) in the order of their sequences. The columns account and stream
are not in it: they are in the names of its directories, where Spark, DuckDB and pyarrow find them, and in the
file's metadata. Sequence, time and subject have statistics in the file's footer and page index, so that a
query reads only the pages that may match."""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gnats.archive.digest import Digest
from gnats.archive.errors import ArchiveError
from gnats.archive.manifest import STAGING, Entry, Manifest
from gnats.archive.reading.source import SCHEMA
from gnats.go.text import HOUR
from gnats.version import __version__

FILE_SCHEMA = pa.schema([each for each in SCHEMA if each.name not in ("account", "stream")])
"""The columns of a file."""

_PARTITION_NS = {"date": 24 * HOUR, "hour": HOUR}
MAX_OPEN = 8
"""Files that a task has open at the same time. A mirror, or a clock that jumped, may mix several days."""
_STATISTICS = ["sequence", "subject", "time", "time_ns", "size", "block"]
_DELTA = ("sequence", "time", "time_ns")
_DICTIONARY = ["subject", "size", "block", "headers.key_value.key"]


@dataclass(frozen=True)
class Layout:
    """The layout of files. Sizes in bytes; `memory` bounds the messages that a task keeps before writing."""

    partition: str = "date"
    file_bytes: int = 256 << 20
    row_group_rows: int = 1 << 20
    memory: int = 256 << 20
    compression_level: int = 1

    @property
    def batch_bytes(self) -> int:
        """Most bytes of payloads in a batch of the reader."""
        return max(self.memory // 8, 1 << 16)

    @property
    def buffered_bytes(self) -> int:
        """Most bytes that all open files together buffer. Encoding needs as much again."""
        return max(self.memory // 3, 1 << 16)


def partition_path(partition: str, unit: int) -> str:
    """Return the directory of a day or hour; `unit` counts days or hours since 1970."""
    if partition == "date":
        return f"date={np.datetime64(unit, 'D')}"
    return f"date={np.datetime64(unit // 24, 'D')}/hour={unit % 24:02}"


class _File:
    """A file that is being written."""

    def __init__(self, manifest: Manifest, job: str, directory: str, layout: Layout) -> None:
        self.manifest = manifest
        self.directory = directory
        self.staged = f"{STAGING}/{job}/{uuid.uuid4().hex}.staged"
        self.buffered = 0
        self.used = 0
        self._rows = 0
        self._layout = layout
        self._batches: list[pa.RecordBatch] = []
        self._digest = Digest()
        self._payload = 0
        self._metadata: list[pq.FileMetaData] = []
        self._sink: IO[bytes] = manifest.storage.open_output(manifest.path(self.staged))
        self._writer = pq.ParquetWriter(
            self._sink,
            FILE_SCHEMA,
            compression="zstd",
            compression_level=layout.compression_level,
            use_dictionary=_DICTIONARY,
            column_encoding=dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
            write_statistics=_STATISTICS,
            write_page_index=True,
            write_page_checksum=True,
            sorting_columns=[pq.SortingColumn(0)],
            metadata_collector=self._metadata,
        )

    def add(self, batch: pa.RecordBatch) -> None:
        self._digest.update(batch)
        self._batches.append(batch)
        self._rows += batch.num_rows
        self.buffered += batch.nbytes
        if self._rows >= self._layout.row_group_rows:
            self.flush()

    def flush(self) -> None:
        """Write the buffered messages as a row group."""
        if self._batches:
            table = pa.Table.from_batches(self._batches, FILE_SCHEMA)
            self._payload += int(pa.compute.sum(table.column("size")).as_py())
            with self.manifest.storage.errors("written", self.staged):
                self._writer.write_table(table, row_group_size=max(self._rows, 1))
        self._batches, self._rows, self.buffered = [], 0, 0

    @property
    def full(self) -> bool:
        return bool(self._sink.tell() >= self._layout.file_bytes)

    def close(self) -> Entry:
        """End the file and make it durable. It is not part of the archive before it is committed."""
        self.flush()
        origin, digest = self.manifest.origin, self._digest.hex()
        with self.manifest.storage.errors("written", self.staged):
            about = {
                "account": origin.account,
                "stream": origin.stream,
                "created": origin.created,
                "digest": digest,
                "writer": f"gnats {__version__}",
            }
            self._writer.add_key_value_metadata({"gnats": json.dumps(about)})
            self._writer.close()
            size = self._sink.tell()
            self._sink.close()
        self.manifest.storage.sync(self.manifest.path(self.staged))
        metadata = self._metadata[0]
        first_seq, last_seq = _range(metadata, "sequence")
        first_ns, last_ns = _range(metadata, "time_ns")
        first_subject, last_subject = _range(metadata, "subject")
        return Entry(
            path=f"{self.directory}/{first_seq}-{last_seq}.parquet",
            staged=self.staged,
            file_bytes=size,
            rows=metadata.num_rows,
            payload_bytes=self._payload,
            first_seq=first_seq,
            last_seq=last_seq,
            first_ns=first_ns,
            last_ns=last_ns,
            first_subject=first_subject,
            last_subject=last_subject,
            digest=digest,
        )

    def discard(self) -> None:
        self._batches = []
        with suppress(*self.manifest.storage.faults):  # an error has been raised already
            self._writer.close()
            self._sink.close()
        self.manifest.storage.delete(self.manifest.path(self.staged))


def _range(metadata: pq.FileMetaData, column: str) -> tuple[Any, Any]:
    """Return (least, greatest) value of a column; "" for subjects that are too long for the footer."""
    at = FILE_SCHEMA.get_field_index(column)  # no column before these has more than one leaf
    found = [metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups)]
    if any(each is None or not each.has_min_max for each in found):
        if column != "subject":
            raise ArchiveError(f"a Parquet file was written without statistics of {column}")
        return "", ""
    return min(each.min for each in found), max(each.max for each in found)


class Writer:
    """Writes the messages of a task, in the order of their sequences. A context; it discards failed files."""

    def __init__(self, manifest: Manifest, job: str, layout: Layout) -> None:
        self.manifest = manifest
        self.job = job
        self.layout = layout
        self.entries: list[Entry] = []
        self.last_seq = 0
        self._unit_ns = _PARTITION_NS[layout.partition]
        self._open: dict[int, _File] = {}
        self._clock = 0

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self.close()
            return
        for file in self._open.values():
            file.discard()
        for entry in self.entries:
            self.manifest.storage.delete(self.manifest.path(entry.staged))

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch of SCHEMA. Raises ArchiveError when its sequences do not follow the last batch's."""
        if not batch.num_rows:
            return
        sequences = batch.column("sequence").to_numpy()
        if sequences[0] <= self.last_seq or (len(sequences) > 1 and bool((np.diff(sequences) <= 0).any())):
            raise ArchiveError(f"{self.manifest.directory}: sequences are out of order at {sequences[0]}")
        self.last_seq = int(sequences[-1])
        units = batch.column("time_ns").to_numpy() // self._unit_ns
        batch = batch.select(FILE_SCHEMA.names)
        if (units == units[0]).all():
            self._add(int(units[0]), batch)
            return
        for unit in np.unique(units):
            self._add(int(unit), batch.filter(pa.array(units == unit)))

    def _add(self, unit: int, batch: pa.RecordBatch) -> None:
        file = self._open.get(unit)
        if file is None:
            if len(self._open) >= MAX_OPEN:
                self._end(min(self._open, key=lambda unit: self._open[unit].used))
            directory = partition_path(self.layout.partition, unit)
            file = self._open[unit] = _File(self.manifest, self.job, directory, self.layout)
        self._clock += 1
        file.used = self._clock
        file.add(batch)
        while sum(each.buffered for each in self._open.values()) > self.layout.buffered_bytes:
            max(self._open.values(), key=lambda each: each.buffered).flush()
        if file.full:
            self._end(unit)

    def _end(self, unit: int) -> None:
        self.entries.append(self._open.pop(unit).close())

    def close(self) -> None:
        """End all files, and add them to `entries`."""
        while self._open:
            self._end(next(iter(self._open)))
