"""The Spark data source `jetstream`: a stream of a store directory as a table, or as a streaming one.

The options, besides the path of the store, are in `Settings`. A partition is a group of blocks; reading it
yields the scanner's Arrow batches."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StringType, StructField, StructType

from gnats.archive.arguments import moment
from gnats.archive.errors import ArchiveError
from gnats.archive.jobs.plan import Task, origin_of, sequences_of, tasks
from gnats.archive.ranges import Ranges
from gnats.archive.reading.snapshot import check_gone
from gnats.archive.reading.source import BATCH_ROWS, SCHEMA, Selection, Snapshot, StreamSource
from gnats.archive.reading.streams import Keys, find_stream
from gnats.archive.spark.decode import decode, infer, nullable

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    LIMITS = True
except ImportError:  # PySpark before 4.2 has neither limits nor Trigger.AvailableNow for Python sources
    LIMITS = False
    SupportsTriggerAvailableNow = object  # type: ignore[assignment, misc]

TASK_BYTES = 64 << 20
_MOST = 2**63 - 1
_URL = re.compile("file:|[A-Za-z][A-Za-z0-9+.-]*://", re.IGNORECASE)
VALUE, PROBLEM = "value", "problem"
"""The columns of a decoded payload: its value, and the reason why there is none."""


@dataclass(frozen=True)
class Settings:
    """The options of the source; their names are these in camelCase, and case does not matter.

    path                 a store directory (`load(path)`), or its URL with file:
    stream, account      which stream; not needed where there is only one
    key, prevKey, cipher of an encrypted store; keyFile and prevKeyFile name files
    firstSeq, lastSeq    only these sequences
    startTime, endTime   only messages from this time on, and before that one (ISO 8601)
    subject              NATS filters, separated by commas
    decode               json: columns `value`, the payload as a struct, and `problem`, why there is none
    payloadSchema        of the struct, as StructType.json() writes it; otherwise it is inferred from
    inferRows            so many messages (1000)
    damage               fail, or skip what cannot be read
    taskBytes            bytes of blocks in a partition (64 MiB)
    maxRowsPerTrigger    most messages of a micro-batch, those of other subjects counted as well; or
    maxBytesPerTrigger   bytes of blocks (streaming)
    """

    path: str
    stream: str | None
    account: str | None
    keys: Keys | None
    selection: Selection
    decode: bool
    payload_schema: StructType | None
    infer_rows: int
    skip_damage: bool
    task_bytes: int
    max_rows: int | None
    max_bytes: int | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Settings:
        """Read the options. Raises ArchiveError."""
        given = {name.lower(): value for name, value in options.items()}

        def get(name: str) -> str | None:
            return given.pop(name.lower(), None)

        def number(name: str) -> int | None:
            text = get(name)
            if text is not None and not re.fullmatch("[0-9]{1,20}", text):
                raise ArchiveError(f"option {name} is a number, not {text!r}")
            return None if text is None else int(text)

        def positive(name: str) -> int | None:
            value = number(name)
            if value == 0:
                raise ArchiveError(f"option {name} is at least 1")
            return None if value is None else min(value, _MOST)

        def time(name: str) -> int | None:
            text = get(name)
            try:
                return None if text is None else moment(text)
            except ValueError as exc:
                raise ArchiveError(f"option {name}: {exc}") from None

        def one_of(name: str, default: str, *values: str) -> str:
            text = get(name) or default
            if text not in values:
                raise ArchiveError(f"option {name} is {' or '.join(values)}, not {text!r}")
            return text

        path = get("path")
        if path is None:
            raise ArchiveError("which store? load() needs its directory")
        path = local(path)
        subjects = tuple(each.strip() for each in (get("subject") or "").split(",") if each.strip())
        infer_rows = positive("inferRows")
        settings = cls(
            path,
            get("stream"),
            get("account"),
            _keys(get),
            Selection(
                number("firstSeq") or 1, number("lastSeq"), time("startTime"), time("endTime"), subjects
            ),
            one_of("decode", "none", "none", "json") == "json",
            _payload_schema(get("payloadSchema")),
            infer_rows or 1000,
            one_of("damage", "fail", "fail", "skip") == "skip",
            positive("taskBytes") or TASK_BYTES,
            positive("maxRowsPerTrigger"),
            positive("maxBytesPerTrigger"),
        )
        if given:
            raise ArchiveError(f"jetstream has no option {', '.join(sorted(given))}")
        if not settings.decode and (settings.payload_schema or infer_rows):
            raise ArchiveError("options payloadSchema and inferRows need decode=json")
        if settings.max_rows and settings.max_bytes:
            raise ArchiveError("options maxRowsPerTrigger and maxBytesPerTrigger exclude each other")
        return settings

    def snapshot(self) -> Snapshot:
        return StreamSource(find_stream(self.path, self.stream, self.account), self.keys).snapshot()


def local(path: str) -> str:
    """Return the path of a URL `file:///path`; a path unchanged. Raises ArchiveError for another URL."""
    if not _URL.match(path):
        return path
    url = urlsplit(path)
    if url.scheme != "file" or url.netloc not in ("", "localhost"):
        raise ArchiveError(f"{path} is no directory of this machine: a store is a path or file:///path")
    return unquote(url.path)


def _payload_schema(text: str | None) -> StructType | None:
    if text is None:
        return None
    try:
        struct = StructType.fromJson(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, PySparkException) as exc:
        why = str(exc).partition("\n")[0]
        raise ArchiveError(
            f"payloadSchema is no schema as StructType.json() writes it: {type(exc).__name__}: {why}"
        ) from None
    return _struct(struct, "payloadSchema")


def _struct(kind: DataType, name: str) -> StructType:
    """Return nullable() of a struct type. Raises ArchiveError for another type."""
    struct = nullable(kind, name)
    if not isinstance(struct, StructType):
        raise ArchiveError(f"{name} is a struct, not {kind.simpleString()}")
    return struct


def _keys(get: Any) -> Keys | None:
    found = []
    for name in ("key", "prevKey"):
        key, file = get(name), get(f"{name}File")
        if key and file:
            raise ArchiveError(f"options {name} and {name}File exclude each other")
        try:
            found.append(Path(file).read_text().strip() if file else key)
        except (OSError, UnicodeDecodeError) as exc:
            raise ArchiveError(f"{name}File {file} cannot be read: {exc}") from None
    cipher = get("cipher")
    if not found[0] and (found[1] or cipher):
        raise ArchiveError("options prevKey and cipher need a key")
    return Keys(found[0], found[1], cipher or "chachapoly") if found[0] else None


class JetStreamSource(DataSource):
    """`spark.read.format("jetstream").option("stream", NAME).load(STORE)`"""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.settings = Settings.of(options)

    @classmethod
    def name(cls) -> str:
        return "jetstream"

    def schema(self) -> StructType:
        plain = from_arrow_schema(SCHEMA)
        if not self.settings.decode:
            return plain
        struct = self.settings.payload_schema or self._inferred()
        return StructType([*plain.fields, StructField(VALUE, struct), StructField(PROBLEM, StringType())])

    def _inferred(self) -> StructType:
        payloads: list[bytes] = []
        for batch in self.settings.snapshot().scan(self.settings.selection, batch_rows=1024).reader:
            payloads += batch.column("payload").to_pylist()
            if len(payloads) >= self.settings.infer_rows:
                break
        return from_arrow_schema(infer(payloads[: self.settings.infer_rows]))

    def reader(self, schema: StructType) -> DataSourceReader:
        if self.settings.max_rows or self.settings.max_bytes:
            raise ArchiveError("maxRowsPerTrigger and maxBytesPerTrigger are for readStream")
        return Reader(self.settings, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(self.settings, schema)


class Part(InputPartition):
    """A group of blocks."""

    def __init__(self, task: Task, selection: Selection) -> None:
        super().__init__(task)
        self.task = task
        self.selection = selection


def _arrow_schema(schema: StructType) -> pa.Schema:
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


def _read(part: Part, settings: Settings, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a partition, with the columns that Spark requests."""
    target = _arrow_schema(schema)
    if VALUE in target.names:
        struct = target.field(VALUE).type
    else:  # only `problem` is requested: whether payloads are objects, and fit the schema if there is one
        struct = pa.struct(list(_arrow_schema(settings.payload_schema or StructType())))
    scan = part.task.snapshot.scan(part.selection)
    for batch in scan.reader:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if settings.decode and not {VALUE, PROBLEM}.isdisjoint(target.names):
            columns[VALUE], columns[PROBLEM] = decode(columns["payload"], struct)
        yield pa.RecordBatch.from_arrays(
            [columns[field.name].cast(field.type) for field in target], schema=target
        )
    check_gone(part.task.snapshot, scan.vanished)
    if scan.damage and not settings.skip_damage:
        raise ArchiveError(f"{scan.stream.path} is damaged: {'; '.join(map(str, scan.damage[:5]))}")


def _check_whole(snapshot: Snapshot, settings: Settings, first: int = 1, last: int = _MOST) -> None:
    """Raise ArchiveError for damage outside of blocks, like a missing file.

    Damage that is known to be outside of the range of sequences is ignored.
    """
    if settings.skip_damage:
        return
    for each in snapshot.damage:
        if (each.first_seq or 1) <= last and (each.last_seq or _MOST) >= first:
            raise ArchiveError(f"{snapshot.stream.path} is damaged: {each}")


def _last(snapshot: Snapshot, selection: Selection) -> int:
    known = snapshot.last_seq
    return known if selection.last_seq is None else min(known, selection.last_seq)


def _parts(snapshot: Snapshot, selection: Selection, task_bytes: int) -> list[Part]:
    wanted = Ranges([(selection.first_seq, _last(snapshot, selection))])
    selected = replace(snapshot, blocks=snapshot.select(selection))
    return [
        Part(task, replace(selection, first_seq=task.first_seq, last_seq=task.last_seq))
        for task in tasks(origin_of(snapshot), selected, wanted, task_bytes)
        if task.snapshot.blocks
    ]


def _check_schema(schema: StructType, settings: Settings) -> None:
    known = {*SCHEMA.names, *((VALUE, PROBLEM) if settings.decode else ())}
    if unknown := [name for name in schema.fieldNames() if name not in known]:
        raise ArchiveError(f"jetstream has no column {', '.join(unknown)}; there: {', '.join(sorted(known))}")
    for field in schema.fields:
        if field.name == VALUE and _struct(field.dataType, VALUE) != field.dataType:
            raise ArchiveError("column value is NOT NULL in parts; any field may be null")
        if field.name in ("headers", VALUE, PROBLEM) and not field.nullable:
            raise ArchiveError(f"column {field.name} may be null, and cannot be NOT NULL")


class Reader(DataSourceReader):
    """Reads a stream, as it is when the query is planned."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        _check_schema(schema, settings)
        self.settings = settings
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        snapshot = self.settings.snapshot()
        _check_whole(snapshot, self.settings)
        return _parts(snapshot, self.settings.selection, self.settings.task_bytes) or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Part):
            yield from _read(partition, self.settings, self.schema)


Offset = dict[str, int]
"""`sequence`: the last one read; `created`: the stream's time of creation in ns since 1970, if known."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new messages of a stream as they arrive."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        _check_schema(schema, settings)
        if not LIMITS and (settings.max_rows or settings.max_bytes):
            raise ArchiveError("maxRowsPerTrigger and maxBytesPerTrigger need PySpark 4.2")
        self.settings = settings
        self.schema = schema
        self._until: int | None = None

    def initialOffset(self) -> Offset:
        snapshot, selection = self.settings.snapshot(), self.settings.selection
        first = max(selection.first_seq, snapshot.first_seq)
        if selection.start_ns is not None:
            first = max(first, sequences_of(snapshot, selection.start_ns, None)[0])
        return _offset(snapshot, first - 1)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.settings.max_rows:
            return ReadMaxRows(self.settings.max_rows)
        if self.settings.max_bytes:
            return ReadMaxBytes(self.settings.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = _last(self.settings.snapshot(), self.settings.selection)

    def reportLatestOffset(self) -> Offset:
        snapshot = self.settings.snapshot()
        return _offset(snapshot, _last(snapshot, self.settings.selection))

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        snapshot, selection = self.settings.snapshot(), self.settings.selection
        last = _last(snapshot, selection)
        if self._until is not None:
            last = min(last, self._until)
        if start is None:  # PySpark before 4.2
            return _offset(snapshot, last)
        _check_same(snapshot, start)
        begin = int(start["sequence"])
        if begin >= last:
            return start
        selection = replace(selection, first_seq=begin + 1, last_seq=last)
        if LIMITS and isinstance(limit, ReadMaxRows):
            last = _after_rows(snapshot, selection, last, limit.max_rows)
        elif LIMITS and isinstance(limit, ReadMaxBytes):
            last = min(last, _after_bytes(snapshot, selection, last, limit.max_bytes))
        return _offset(snapshot, last, start)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        snapshot = self.settings.snapshot()
        _check_same(snapshot, start, end)
        first, last = int(start["sequence"]) + 1, int(end["sequence"])
        if first > last:
            return []
        if last > snapshot.last_seq:
            raise ArchiveError(
                f"{snapshot.stream.path} ends at sequence {snapshot.last_seq}, and was read up to {last}: "
                "it was rolled back, and the query needs a new checkpoint"
            )
        _check_whole(snapshot, self.settings, first, last)
        selection = replace(self.settings.selection, first_seq=first, last_seq=last)
        return _parts(snapshot, selection, self.settings.task_bytes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Part):
            yield from _read(partition, self.settings, self.schema)

    def commit(self, end: Offset) -> None:
        """Do nothing: no state is kept for a query."""

    def stop(self) -> None:
        """Do nothing: no files are open."""


def _offset(snapshot: Snapshot, sequence: int, before: Offset | None = None) -> Offset:
    created = snapshot.created or (before or {}).get("created", 0)
    return {"sequence": sequence, "created": created} if created else {"sequence": sequence}


def _check_same(snapshot: Snapshot, *offsets: Offset) -> None:
    """Raise ArchiveError when offsets are of another stream of the same name."""
    for each in offsets:
        created = each.get("created", 0)
        if created and snapshot.created and created != snapshot.created:
            raise ArchiveError(
                f"{snapshot.stream.path} was deleted and made anew: the query needs a new checkpoint"
            )


def _after_rows(snapshot: Snapshot, selection: Selection, last: int, rows: int) -> int:
    """Return the sequence up to which there are `rows` messages of any subject; `last` if there are fewer.

    Reads a block only when the limit or the end of the selection is within it.
    """
    numbers = replace(selection, subjects=(), start_ns=None, end_ns=None)
    for block in snapshot.select(selection):
        first, end = block.first_seq, block.last_seq
        selected = first is not None and end is not None and selection.first_seq <= first and end <= last
        if selected and end is not None and not block.damaged and block.messages <= rows:
            rows -= block.messages
            if not rows:
                return end
            continue
        for batch in snapshot.scan(numbers, [block], batch_rows=min(rows, BATCH_ROWS)).reader:
            if batch.num_rows >= rows:
                return int(batch.column("sequence")[rows - 1].as_py())
            rows -= batch.num_rows
    return last


def _after_bytes(snapshot: Snapshot, selection: Selection, last: int, size: int) -> int:
    """Return the last sequence of the first blocks with `size` bytes or more; `last` when they have fewer."""
    for block in snapshot.select(selection):
        size -= block.size
        if size <= 0 and block.last_seq is not None:
            return block.last_seq
    return last
