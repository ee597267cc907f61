"""Scan a stream into batches of Arrow columns.

Native code fills the batches. Memory is bounded by the batch's size, the largest message, and, for
compressed, encrypted or damaged blocks, by the size of a block (servers keep that below 8 MiB and one
message).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from gnats.archive.errors import ArchiveError
from gnats.archive.reading.blocks import BlockDamage, BlockFiles
from gnats.archive.reading.model import ALL, BATCH_BYTES, BATCH_ROWS, Block, Damage, Selection
from gnats.archive.reading.streams import Keys, StreamDir, read_meta
from gnats.archive.scanner import BlockReader, Scanner
from gnats.archive.text import unshow
from gnats.core.subjects.subject import valid_subject
from gnats.go.text import HOUR
from gnats.store.index.seqset import SequenceSet

SCHEMA = pa.schema(
    [
        pa.field("account", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("headers", pa.map_(pa.string(), pa.list_(pa.string()))),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("block", pa.int32(), nullable=False),
    ]
)
"""The columns. Bytes of subjects and headers that are not UTF-8 become `\\xNN` (gnats.archive.text)."""
_NATIVE = pa.schema([field for field in SCHEMA if field.name not in ("account", "stream")])
_MOST_ROWS = 2**24
_LAST_SEQ = 2**63 - 1
_MOST_SEQ = 2**64 - 1
_SKEW = HOUR
"""ns by which a clock may have been set back within a block: only its first and last times are known."""
_FIRST_NS, _LAST_NS = -(2**63), 2**63 - 1


class _Columns:
    """Passes the scanner's capsule to pyarrow."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return _NATIVE.__arrow_c_schema__(), self._capsule


class Scan:
    """A scan in progress: its reader yields the batches.

    `damage` is complete when the reader has reached its end. `messages` and `bytes` (of payloads) count the
    messages yielded so far. `vanished` are blocks that were removed, with their messages. `tail` is the part
    of the last block after the last whole record: a record that is being written, or that was cut off.
    """

    def __init__(self, snapshot: Snapshot, selection: Selection, batch_rows: int, batch_bytes: int) -> None:
        if batch_rows < 1 or batch_bytes < 1:
            raise ValueError("batch_rows and batch_bytes are at least 1")
        self.stream = snapshot.stream
        self.damage: list[Damage] = list(snapshot.damage)
        self.vanished: list[int] = list(snapshot.vanished)
        self.tail: Damage | None = None
        self.messages = 0
        self.bytes = 0
        self._snapshot = snapshot
        selection = _in_range(selection)
        self._blocks = snapshot.select(selection)
        self._deleted, _ = SequenceSet.decode(snapshot.deleted)
        last = snapshot.last_seq if selection.last_seq is None else min(selection.last_seq, snapshot.last_seq)
        rows = min(batch_rows, _MOST_ROWS)
        self._scanner = Scanner(
            self._deleted,
            selection.first_seq,
            last,
            selection.start_ns,
            selection.end_ns,
            _filters(selection.subjects),
            rows,
            batch_bytes,
        )
        self._names = [
            pa.repeat(pa.scalar(name, pa.string()), rows) for name in (self.stream.account, self.stream.name)
        ]
        self.reader: pa.RecordBatchReader = pa.RecordBatchReader.from_batches(SCHEMA, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        files = BlockFiles(self.stream, self._snapshot.keys)
        scanner = self._scanner
        for block in self._blocks:
            try:
                with files.open(block.path, block.index, is_last=block.is_last) as reader:
                    while not scanner.fill(reader, block.low):
                        yield self._take()
                    self._note(block, reader)
            except FileNotFoundError:
                if not Path(self.stream.path).is_dir():
                    raise ArchiveError(
                        f"{self.stream.path} is not there: deleted, or not seen by this machine"
                    ) from None
                self.vanished.append(block.index)
            except BlockDamage as exc:
                self.damage.append(self._damage(block, 0, block.size, str(exc), 0, 0))
        self._check_same()
        if scanner.rows:
            yield self._take()

    def _check_same(self) -> None:
        """Raise ArchiveError when the stream was deleted and made again since the snapshot.

        Then the scan may have read blocks of both streams.
        """
        if not self._snapshot.created:
            return
        meta = read_meta(self.stream, self._snapshot.keys, lambda why: None)
        if meta and meta.created != self._snapshot.created:
            raise ArchiveError(f"{self.stream.path} was deleted and made anew while it was read")

    def _take(self) -> pa.RecordBatch:
        self.bytes += self._scanner.payload_bytes
        native = pa.record_batch(_Columns(self._scanner.take()))
        rows = native.num_rows
        self.messages += rows
        names = [column.slice(0, rows) for column in self._names]
        return pa.RecordBatch.from_arrays([*names, *native.columns], schema=SCHEMA)

    def _note(self, block: Block, reader: BlockReader) -> None:
        for start, end, first, last, reason in reader.holes():
            if reason:
                self.damage.append(self._damage(block, start, end, reason, first, last))
            else:
                self.tail = self._damage(block, start, end, "an incomplete record", first, last)

    def _damage(self, block: Block, start: int, end: int, reason: str, first: int, last: int) -> Damage:
        """Make a Damage, with the range of missing sequences as far as known, without deleted ones."""
        first = max(first or (block.after or 0) + 1, block.low)
        last = last or (block.before or self._snapshot.last_seq + 1) - 1
        if first > last or last + 1 - first == self._deleted.count(first, last):
            return Damage(block.index, start, end, reason)
        return Damage(block.index, start, end, reason, first, last)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A stream's files at one moment: all that a task needs to scan a part of the stream. Can be pickled.

    `created` is the stream's time of creation, ns since 1970 (0: unknown); a later stream of the same name
    has another one. first_seq is last_seq + 1 without messages. `deleted` is an encoded SequenceSet.
    """

    stream: StreamDir
    keys: Keys | None
    created: int
    first_seq: int
    last_seq: int
    messages: int
    blocks: tuple[Block, ...]
    deleted: bytes = field(repr=False)
    damage: tuple[Damage, ...] = ()
    vanished: tuple[int, ...] = ()
    """Blocks in index.db without a file. Servers remove blocks at the front of a stream like that."""

    def select(self, selection: Selection = ALL) -> tuple[Block, ...]:
        """Return the blocks that may have messages of a selection."""
        return tuple(each for each in self.blocks if _may_have(each, selection))

    def part(self, blocks: Iterable[Block | int]) -> Snapshot:
        """Return a snapshot of these blocks only, for a task; without the damage outside of blocks."""
        wanted = {each if isinstance(each, int) else each.index for each in blocks}
        kept = tuple(each for each in self.blocks if each.index in wanted)
        deleted, _ = SequenceSet.decode(self.deleted)
        if kept and kept[0].after:
            deleted.delete_range(0, kept[0].after)
        if kept and kept[-1].before:
            deleted.delete_range(kept[-1].before, _MOST_SEQ)
        return replace(
            self,
            blocks=kept,
            messages=sum(each.messages for each in kept),
            deleted=deleted.encode(),
            damage=(),
            vanished=(),
        )

    def scan(
        self,
        selection: Selection = ALL,
        blocks: Iterable[Block | int] | None = None,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
    ) -> Scan:
        """Start a scan. A batch has at most batch_rows messages and about batch_bytes, or one message."""
        return Scan(self if blocks is None else self.part(blocks), selection, batch_rows, batch_bytes)


def _may_have(block: Block, selection: Selection) -> bool:
    if not block.messages:
        return block.damaged
    if block.first_seq is None or block.last_seq is None:
        return True
    if block.last_seq < selection.first_seq:
        return False
    if selection.last_seq is not None and block.first_seq > selection.last_seq:
        return False
    if block.first_ns is None or block.last_ns is None:
        return True
    earliest, latest = min(block.first_ns, block.last_ns) - _SKEW, max(block.first_ns, block.last_ns) + _SKEW
    if selection.start_ns is not None and latest < selection.start_ns:
        return False
    return selection.end_ns is None or earliest < selection.end_ns


def _in_range(selection: Selection) -> Selection:
    """Clamp a selection to the range of native numbers; it selects nothing when it lies outside."""
    first, last, start, end = selection.first_seq, selection.last_seq, selection.start_ns, selection.end_ns
    if start is not None and start < _FIRST_NS:
        start = None
    if end is not None and end > _LAST_NS:
        end = None
    if (
        first > _LAST_SEQ
        or (start is not None and start > _LAST_NS)
        or (end is not None and end <= _FIRST_NS)
    ):
        return replace(selection, first_seq=1, last_seq=0, start_ns=None, end_ns=None)
    return replace(
        selection,
        first_seq=max(first, 1),
        last_seq=None if last is None else max(last, 0),
        start_ns=start,
        end_ns=end,
    )


def _filters(subjects: tuple[str, ...]) -> list[bytes]:
    for subject in subjects:
        if not valid_subject(subject):
            raise ArchiveError(f"{subject!r} is no subject")
    return [unshow(subject) for subject in subjects]
