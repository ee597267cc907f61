"""The Spark data source `jetstream`: a stream of a store directory as a table, or as a streaming one.

Options, besides the path of the store: see `Settings`. A partition is a group of blocks; what comes out of
it are Arrow batches, as the scanner makes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as api
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from gnats.archive.cli import moment
from gnats.archive.errors import ArchiveError
from gnats.archive.plan import Task, origin_of, sequences_of, tasks
from gnats.archive.ranges import Ranges
from gnats.archive.source import SCHEMA, Selection, Snapshot, StreamSource
from gnats.archive.spark.decode import decode, infer
from gnats.archive.streams import Keys, find_stream

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    LIMITS = True
except ImportError:  # PySpark before 4.2 has no limits, and no Trigger.AvailableNow for sources in Python
    LIMITS = False
    SupportsTriggerAvailableNow = object  # type: ignore[assignment, misc]

TASK_BYTES = 64 << 20
VALUE, PROBLEM = "value", "problem"
"""The columns of a decoded payload: what it is, and why it is none."""


def can_push_filters() -> bool:
    return hasattr(DataSourceReader, "pushFilters")


@dataclass(frozen=True)
class Settings:
    """The options of the source; their names are these in camelCase, and case does not matter.

    path                 a store directory (`load(path)`)
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
    maxRowsPerTrigger, maxBytesPerTrigger  of a micro-batch, in messages or bytes of blocks (streaming)
    """

    path: str
    stream: str | None
    account: str | None
    keys: Keys | None
    selection: Selection
    decode: bool
    payload_schema: str | None
    infer_rows: int
    skip_damage: bool
    task_bytes: int
    max_rows: int | None
    max_bytes: int | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Settings:
        """Raises ArchiveError."""
        given = {name.lower(): value for name, value in options.items()}

        def get(name: str) -> str | None:
            return given.pop(name.lower(), None)

        def number(name: str) -> int | None:
            text = get(name)
            if text is not None and not text.isdigit():
                raise ArchiveError(f"option {name} is a number, not {text!r}")
            return None if text is None else int(text)

        def time(name: str) -> int | None:
            text = get(name)
            try:
                return None if text is None else moment(text)
            except ValueError:
                raise ArchiveError(f"option {name} is a time in ISO 8601, not {text!r}") from None

        def one_of(name: str, default: str, *values: str) -> str:
            text = get(name) or default
            if text not in values:
                raise ArchiveError(f"option {name} is {' or '.join(values)}, not {text!r}")
            return text

        path = get("path")
        if path is None:
            raise ArchiveError("which store? load() needs its directory")
        subjects = tuple(each.strip() for each in (get("subject") or "").split(",") if each.strip())
        settings = cls(
            path,
            get("stream"),
            get("account"),
            _keys(get),
            Selection(
                number("firstSeq") or 1, number("lastSeq"), time("startTime"), time("endTime"), subjects
            ),
            one_of("decode", "none", "none", "json") == "json",
            get("payloadSchema"),
            number("inferRows") or 1000,
            one_of("damage", "fail", "fail", "skip") == "skip",
            number("taskBytes") or TASK_BYTES,
            number("maxRowsPerTrigger"),
            number("maxBytesPerTrigger"),
        )
        if given:
            raise ArchiveError(f"jetstream has no option {', '.join(sorted(given))}")
        return settings

    def snapshot(self) -> Snapshot:
        return StreamSource(find_stream(self.path, self.stream, self.account), self.keys).snapshot()


def _keys(get: Any) -> Keys | None:
    found = []
    for name in ("key", "prevKey"):
        key, file = get(name), get(f"{name}File")
        try:
            found.append(Path(file).read_text().strip() if file else key)
        except (OSError, UnicodeDecodeError) as exc:
            raise ArchiveError(f"{name}File {file} cannot be read: {exc}") from None
    cipher = get("cipher")
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
        if self.settings.payload_schema:
            try:
                struct = StructType.fromJson(json.loads(self.settings.payload_schema))
            except (ValueError, KeyError, TypeError) as exc:
                raise ArchiveError(
                    f"payloadSchema is no schema as StructType.json() writes it: {exc}"
                ) from None
        else:
            struct = self._inferred()
        return StructType([*plain.fields, StructField(VALUE, struct), StructField(PROBLEM, StringType())])

    def _inferred(self) -> StructType:
        payloads: list[bytes] = []
        for batch in self.settings.snapshot().scan(self.settings.selection, batch_rows=1024).reader:
            payloads += batch.column("payload").to_pylist()
            if len(payloads) >= self.settings.infer_rows:
                break
        return from_arrow_schema(infer(payloads[: self.settings.infer_rows]))

    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader(self.settings, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(self.settings, schema)


class FilteringJetStreamSource(JetStreamSource):
    """The same, and Spark's filters choose blocks."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return FilteringReader(self.settings, schema)


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
    """The batches of a partition, with the columns that Spark has asked for."""
    target = _arrow_schema(schema)
    scan = part.task.snapshot.scan(part.selection)
    for batch in scan.reader:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if VALUE in target.names and settings.decode:
            decoded = decode(columns["payload"], target.field(VALUE).type)
            columns[VALUE], columns[PROBLEM] = decoded
        yield pa.RecordBatch.from_arrays(
            [columns[field.name].cast(field.type) for field in target], schema=target
        )
    if scan.damage and not settings.skip_damage:
        raise ArchiveError(f"{scan.stream.path} is damaged: {'; '.join(map(str, scan.damage[:5]))}")


def _parts(snapshot: Snapshot, selection: Selection, task_bytes: int) -> list[Part]:
    wanted = Ranges([(selection.first_seq, min(selection.last_seq or snapshot.last_seq, snapshot.last_seq))])
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


class Reader(DataSourceReader):
    """Reads a stream as it is when the query is planned."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        _check_schema(schema, settings)
        self.settings = settings
        self.schema = schema
        self.selection = settings.selection

    def partitions(self) -> Sequence[InputPartition]:
        snapshot = self.settings.snapshot()
        if snapshot.damage and not self.settings.skip_damage:
            raise ArchiveError(f"{snapshot.stream.path} is damaged: {snapshot.damage[0]}")
        return _parts(snapshot, self.selection, self.settings.task_bytes) or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Part):
            yield from _read(partition, self.settings, self.schema)


class FilteringReader(Reader):
    """Lets filters on sequence, time and subject choose the blocks that are read. Spark applies them as
    well."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        for each in filters:
            self.selection = narrowed(self.selection, each)
        return filters


def narrowed(selection: Selection, condition: Any) -> Selection:
    """A selection with what a filter of Spark's says of it; never less than it says."""
    if len(getattr(condition, "attribute", ())) != 1:
        return selection
    (column,) = condition.attribute
    if column == "subject":
        return _narrowed_subject(selection, condition)
    value = getattr(condition, "value", None)
    if column == "time" and isinstance(value, datetime):
        since = value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        low = ((since.days * 86400 + since.seconds) * 10**6 + since.microseconds) * 1000
        high = low + 999  # a time in µs stands for these ns
    elif column in ("sequence", "time_ns") and isinstance(value, int):
        low = high = value
    elif column == "sequence" and isinstance(condition, api.In):
        numbers = [each for each in condition.value if isinstance(each, int)]
        return _sequences(selection, min(numbers), max(numbers)) if numbers else selection
    else:
        return selection
    at_least = {
        api.EqualTo: low,
        api.EqualNullSafe: low,
        api.GreaterThan: high + 1,
        api.GreaterThanOrEqual: low,
    }.get(type(condition))
    at_most = {
        api.EqualTo: high,
        api.EqualNullSafe: high,
        api.LessThan: low - 1,
        api.LessThanOrEqual: high,
    }.get(type(condition))
    if column == "sequence":
        return _sequences(selection, at_least, at_most)
    start, end = selection.start_ns, selection.end_ns
    if at_least is not None:
        start = at_least if start is None else max(start, at_least)
    if at_most is not None:
        end = at_most + 1 if end is None else min(end, at_most + 1)
    return replace(selection, start_ns=start, end_ns=end)


def _sequences(selection: Selection, first: int | None, last: int | None) -> Selection:
    if first is not None:
        selection = replace(selection, first_seq=max(selection.first_seq, first))
    if last is not None:
        known = selection.last_seq
        selection = replace(selection, last_seq=max(0, last if known is None else min(known, last)))
    return selection


def _narrowed_subject(selection: Selection, condition: Any) -> Selection:
    if (
        selection.subjects
    ):  # there may be others that the condition is about, too: one set of filters is enough
        return selection
    value = condition.value
    if isinstance(condition, api.StringStartsWith):
        head, dot, _ = value.rpartition(".")
        subjects = (f"{head}.>",) if dot else ()
    elif isinstance(condition, (api.EqualTo, api.EqualNullSafe)):
        subjects = (value,) if isinstance(value, str) else ()
    elif isinstance(condition, api.In):
        subjects = tuple(condition.value) if all(isinstance(each, str) for each in condition.value) else ()
    else:
        return selection
    plain = all(
        each and all(token and token != "*" for token in each.removesuffix(".>").split("."))
        for each in subjects
    )
    literal = isinstance(condition, api.StringStartsWith) or not any(each.endswith(">") for each in subjects)
    return replace(selection, subjects=subjects) if plain and literal else selection


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes into a stream. The offset is the last sequence that was read."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        _check_schema(schema, settings)
        self.settings = settings
        self.schema = schema
        self._until: int | None = None

    def initialOffset(self) -> dict[str, int]:
        selection = self.settings.selection
        first = selection.first_seq
        if selection.start_ns is not None:
            first = max(first, sequences_of(self.settings.snapshot(), selection.start_ns, None)[0])
        return {"sequence": first - 1}

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.settings.max_rows:
            return ReadMaxRows(self.settings.max_rows)
        if self.settings.max_bytes:
            return ReadMaxBytes(self.settings.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._last(self.settings.snapshot())

    def _last(self, snapshot: Snapshot) -> int:
        return min(snapshot.last_seq, self.settings.selection.last_seq or snapshot.last_seq)

    def reportLatestOffset(self) -> dict[str, int]:
        return {"sequence": self._last(self.settings.snapshot())}

    def latestOffset(
        self, start: dict[str, int] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, int]:
        snapshot = self.settings.snapshot()
        last = self._last(snapshot)
        if self._until is not None:
            last = min(last, self._until)
        if start is None:
            return {"sequence": last}
        begin = int(start["sequence"])
        if LIMITS and isinstance(limit, ReadMaxRows):
            last = min(last, begin + limit.max_rows)
        elif LIMITS and isinstance(limit, ReadMaxBytes):
            last = min(last, _after_bytes(snapshot, begin, limit.max_bytes))
        return {"sequence": max(begin, last)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = int(start["sequence"]) + 1, int(end["sequence"])
        if first > last:
            return []
        snapshot = self.settings.snapshot()
        if last > snapshot.last_seq:
            raise ArchiveError(
                f"{snapshot.stream.path} ends at sequence {snapshot.last_seq}, and was read up to {last}: "
                "it was rolled back, and the query needs a new checkpoint"
            )
        selection = replace(self.settings.selection, first_seq=first, last_seq=last)
        return _parts(snapshot, selection, self.settings.task_bytes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Part):
            yield from _read(partition, self.settings, self.schema)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept for a query."""

    def stop(self) -> None:
        """Nothing is open."""


def _after_bytes(snapshot: Snapshot, begin: int, size: int) -> int:
    """The last sequence of the blocks behind `begin` that together have `size` bytes; of one block at
    least."""
    last = snapshot.last_seq
    for block in snapshot.select(Selection(first_seq=begin + 1)):
        if block.last_seq is None:
            continue
        last = block.last_seq
        size -= block.size
        if size <= 0:
            break
    return last
