"""Read streams of a store directory into Arrow: the messages that its server would serve after a restart.

The directory is only read, and may be a running server's. Messages in the files are read even when their age
or TTL would make the server remove them, so the result does not depend on the time of day.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from gnats.archive.errors import ArchiveError
from gnats.archive.reading.backups import opened
from gnats.archive.reading.model import (
    ALL,
    BATCH_BYTES,
    BATCH_ROWS,
    Block,
    Damage,
    DamageWarning,
    Selection,
)
from gnats.archive.reading.scan import SCHEMA, Scan, Snapshot
from gnats.archive.reading.snapshot import check_gone, take_snapshot
from gnats.archive.reading.streams import Keys, StreamDir, find_stream

__all__ = [
    "ALL",
    "BATCH_BYTES",
    "BATCH_ROWS",
    "SCHEMA",
    "Block",
    "Damage",
    "DamageWarning",
    "Scan",
    "Selection",
    "Snapshot",
    "StreamSource",
    "read_stream",
]
_SHOWN = 5


class StreamSource:
    """A stream of a store directory. Its methods raise ArchiveError when it cannot be read."""

    def __init__(self, stream: StreamDir, keys: Keys | None = None) -> None:
        self.stream = stream
        self.keys = keys
        self._now: Snapshot | None = None

    def snapshot(self, limits: bool = True) -> Snapshot:
        """Take a snapshot of the stream's files, see take_snapshot()."""
        self._now = take_snapshot(self.stream, self.keys, limits)
        return self._now

    def _known(self) -> Snapshot:
        return self._now or self.snapshot()

    def blocks(self) -> list[Block]:
        """Return the blocks, in order, of a new snapshot."""
        return list(self.snapshot().blocks)

    @property
    def first_seq(self) -> int:
        """The sequence of the first message, as of the last snapshot."""
        return self._known().first_seq

    @property
    def last_seq(self) -> int:
        """The last assigned sequence, as of the last snapshot."""
        return self._known().last_seq

    def scan(
        self,
        selection: Selection = ALL,
        blocks: Iterable[Block | int] | None = None,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
    ) -> Scan:
        """Scan a new snapshot of the stream, see Snapshot.scan()."""
        return self.snapshot().scan(selection, blocks, batch_rows, batch_bytes)


def _checked(
    stream: StreamDir, snapshot: Snapshot, scan: Scan, strict: bool, unpacked: ExitStack
) -> Iterator[pa.RecordBatch]:
    with unpacked:
        yield from scan.reader
        check_gone(snapshot, scan.vanished)
    if scan.tail:
        warnings.warn(f"{stream.path}: {scan.tail}", DamageWarning, stacklevel=2)
    if not scan.damage:
        return
    text = "; ".join(str(each) for each in scan.damage[:_SHOWN])
    if len(scan.damage) > _SHOWN:
        text += f"; and {len(scan.damage) - _SHOWN} more"
    if strict:
        raise ArchiveError(f"{stream.path} is damaged: {text}")
    warnings.warn(f"{stream.path} is damaged: {text}", DamageWarning, stacklevel=2)


def read_stream(
    path: str | Path,
    *,
    stream: str | None = None,
    account: str | None = None,
    first_seq: int = 1,
    last_seq: int | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    subjects: Sequence[str] = (),
    keys: Keys | None = None,
    damage: str = "raise",
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    work_dir: str | Path | None = None,
) -> pa.RecordBatchReader:
    """Read the messages of one stream below a directory (see find_streams()), as batches of SCHEMA.

    A backup is unpacked below `work_dir` first (None: the system's directory for temporary files). The
    unpacked files are removed when the reader has ended or is freed.

    The reader raises ArchiveError when the stream is replaced meanwhile. It raises ArchiveError for damage at
    its end, after all readable messages; with damage="warn" it warns instead (DamageWarning).
    """
    if damage not in ("raise", "warn"):
        raise ValueError(f'damage is "raise" or "warn", not {damage!r}')
    selection = Selection(first_seq, last_seq, start_ns, end_ns, tuple(subjects))
    found = find_stream(path, stream, account)
    with ExitStack() as stack:
        snapshot = StreamSource(stack.enter_context(opened(found, work_dir)), keys).snapshot()
        scan = snapshot.scan(selection, None, batch_rows, batch_bytes)
        batches = _checked(found, snapshot, scan, damage == "raise", stack.pop_all())
    return pa.RecordBatchReader.from_batches(SCHEMA, batches)
