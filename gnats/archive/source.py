"""Reading streams of a store directory into Arrow: what the server that owns it would serve after a restart.

The directory is only read, and may be a running server's. Messages that are in the files are read even when
their age or their TTL would have the server remove them: reading does not depend on the time of day.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from gnats.archive.errors import ArchiveError
from gnats.archive.slow import records
from gnats.archive.streams import BLOCK_FILE, Keys, StreamDir, find_stream, messages_dir, read_config
from gnats.store.seqset import SequenceSet

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
BATCH_ROWS = 65536
BATCH_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Block:
    """A block file as it was looked at; sequences and times as far as they are known without reading it all.

    `size` is in bytes; times are ns since 1970. Of the messages in the file, those below `low` were removed.
    """

    index: int
    path: str
    size: int
    first_seq: int | None = None
    last_seq: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    low: int = 1


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes from `start` to `end` of a block that are no records; block 0: of another file of the stream.

    The sequences from first_seq to last_seq are missing, or some of them, where that is known.
    """

    block: int
    start: int
    end: int
    reason: str
    first_seq: int | None = None
    last_seq: int | None = None

    def __str__(self) -> str:
        where = f"block {self.block}, bytes {self.start} to {self.end}: " if self.block else ""
        lost = f" (sequences {self.first_seq} to {self.last_seq})" if self.first_seq else ""
        return f"{where}{self.reason}{lost}"


class DamageWarning(UserWarning):
    """Some of a stream could not be read."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages: sequences from first_seq to last_seq, both included; times from start_ns to before
    end_ns, ns since 1970; subjects that one of the filters takes (none: all)."""

    first_seq: int = 1
    last_seq: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    subjects: tuple[str, ...] = ()


ALL = Selection()


class Scan:
    """A read under way: what the reader yields, and what it found.

    `damage` is complete when the reader has been read to its end. `messages` and `bytes` (of payloads) count
    what it has yielded so far.
    """

    def __init__(self, snapshot: Snapshot, selection: Selection, rows: int, size: int) -> None:
        if rows < 1 or size < 1:
            raise ValueError("batch_rows and batch_bytes are at least 1")
        self.damage: list[Damage] = list(snapshot.damage)
        self.vanished: list[int] = []
        """Blocks that were removed since the snapshot, and their messages with them."""
        self.messages = 0
        self.bytes = 0
        self.stream = snapshot.stream
        self._snapshot = snapshot
        self._selection = selection
        self._rows = rows
        self._size = size
        self.reader: pa.RecordBatchReader = pa.RecordBatchReader.from_batches(SCHEMA, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        stream = self._snapshot.stream
        rows: list[dict[str, object]] = []
        size = 0
        for row in records(self._snapshot, self._selection, self.damage, self.vanished):
            rows.append({"account": stream.account, "stream": stream.name, **row})
            self.messages += 1
            self.bytes += row["size"]
            size += row["size"]
            if len(rows) >= self._rows or size >= self._size:
                yield pa.RecordBatch.from_pylist(rows, SCHEMA)
                rows, size = [], 0
        if rows:
            yield pa.RecordBatch.from_pylist(rows, SCHEMA)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A stream as its files were at a moment: what a task needs to scan some of it, and can be pickled.

    `deleted` is a SequenceSet, encoded. first_seq is last_seq + 1 when there are no messages.
    """

    stream: StreamDir
    keys: Keys | None
    first_seq: int
    last_seq: int
    blocks: tuple[Block, ...]
    deleted: bytes = field(repr=False)
    damage: tuple[Damage, ...] = ()

    def select(self, selection: Selection = ALL) -> tuple[Block, ...]:
        """The blocks that may have messages of a selection."""
        return tuple(each for each in self.blocks if _may_have(each, selection))

    def part(self, blocks: Iterable[Block | int]) -> Snapshot:
        """Of these blocks only, for a task; what was damaged outside of blocks is not repeated in it."""
        wanted = {each if isinstance(each, int) else each.index for each in blocks}
        kept = tuple(each for each in self.blocks if each.index in wanted)
        return replace(self, blocks=kept, damage=())

    def scan(
        self,
        selection: Selection = ALL,
        blocks: Iterable[Block | int] | None = None,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
    ) -> Scan:
        """Read it. A batch has at most batch_rows messages and about batch_bytes, or one larger one."""
        snapshot = self if blocks is None else self.part(blocks)
        return Scan(snapshot, selection, batch_rows, batch_bytes)


def _may_have(block: Block, selection: Selection) -> bool:
    if (
        selection.last_seq is not None
        and block.first_seq is not None
        and block.first_seq > selection.last_seq
    ):
        return False
    return block.last_seq is None or block.last_seq >= selection.first_seq


class StreamSource:
    """A stream of a store directory. Raises ArchiveError where it cannot be read."""

    def __init__(self, stream: StreamDir, keys: Keys | None = None) -> None:
        self.stream = stream
        self.keys = keys
        self._now: Snapshot | None = None

    def snapshot(self) -> Snapshot:
        """The stream as its files are now."""
        from gnats.archive.slow import gather

        damage: list[Damage] = []
        read_config(self.stream, self.keys, lambda why: damage.append(Damage(0, 0, 0, why)))
        msgs = messages_dir(self.stream)
        if not msgs.is_dir():
            raise ArchiveError(f"{self.stream.path} is no stream: {msgs.name} is not in it")
        blocks = []
        for path in msgs.iterdir():
            if match := BLOCK_FILE.fullmatch(path.name):
                blocks.append(Block(int(match[1]), str(path), path.stat().st_size))
        blocks.sort(key=lambda block: block.index)
        snapshot = Snapshot(
            self.stream, self.keys, 1, 0, tuple(blocks), SequenceSet().encode(), tuple(damage)
        )
        self._now = gather(snapshot)
        return self._now

    def _known(self) -> Snapshot:
        return self._now or self.snapshot()

    def blocks(self) -> list[Block]:
        """Its blocks, in order."""
        return list(self.snapshot().blocks)

    @property
    def first_seq(self) -> int:
        """The first sequence with a message, as of the last snapshot."""
        return self._known().first_seq

    @property
    def last_seq(self) -> int:
        """The last sequence that was given out, as of the last snapshot."""
        return self._known().last_seq

    def scan(
        self,
        selection: Selection = ALL,
        blocks: Sequence[Block | int] | None = None,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
    ) -> Scan:
        """Read the stream as it is now: see Snapshot.scan."""
        return self.snapshot().scan(selection, blocks, batch_rows, batch_bytes)


def _checked(scan: Scan, strict: bool) -> Iterator[pa.RecordBatch]:
    yield from scan.reader
    if not scan.damage:
        return
    text = "; ".join(str(each) for each in scan.damage[:5])
    if len(scan.damage) > 5:
        text += f"; and {len(scan.damage) - 5} more"
    if strict:
        raise ArchiveError(f"{scan.stream.path} is damaged: {text}")
    warnings.warn(f"{scan.stream.path} is damaged: {text}", DamageWarning, stacklevel=2)


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
) -> pa.RecordBatchReader:
    """The messages of one stream below a directory (see find_streams), as batches of SCHEMA.

    Where something of it is damaged the reader raises ArchiveError at its end, after what can be read; with
    damage="warn" it warns (DamageWarning).
    """
    if damage not in ("raise", "warn"):
        raise ValueError(f'damage is "raise" or "warn", not {damage!r}')
    selection = Selection(first_seq, last_seq, start_ns, end_ns, tuple(subjects))
    source = StreamSource(find_stream(path, stream, account), keys)
    scan = source.scan(selection, None, batch_rows, batch_bytes)
    return pa.RecordBatchReader.from_batches(SCHEMA, _checked(scan, damage == "raise"))
