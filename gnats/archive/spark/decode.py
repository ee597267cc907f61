"""Decode JSON payloads to columns.

Arrow's JSON reader decodes whole batches. It fails at the first bad payload: then the batch is halved until
that payload is alone, and gets the reader's error. Payloads that would harm the reader, or that it accepts
wrongly, are removed before."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json
from pyspark.sql import types

from gnats.archive.errors import ArchiveError

LEVELS = 100
"""Most nested objects and arrays, because Arrow's reader and the code for its types recurse."""
INFERRED_LEVELS = 50
"""The same for an inferred schema: Arrow cannot send a column with more than 64 levels."""
_KINDS = (
    *(types.BooleanType, types.ByteType, types.ShortType, types.IntegerType, types.LongType),
    *(types.FloatType, types.DoubleType, types.DecimalType, types.StringType, types.BinaryType),
    *(types.DateType, types.TimestampType, types.TimestampNTZType),
)
"""Types that Arrow's reader can make of a value, besides structs and lists; dates are made of times."""
_ANYTHING = pa.schema([])
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_OTHERS = bytes(set(range(256)) - set(b"{}[]"))


def nullable(kind: types.DataType, name: str, levels: int = 0) -> types.DataType:
    """Make all parts of a Spark type nullable, because a payload may lack any field.

    Raises ArchiveError for a type that cannot be read from JSON, with the field's `name`.
    """
    if levels > INFERRED_LEVELS:
        raise ArchiveError(f"{name} has more than {INFERRED_LEVELS} levels")
    if isinstance(kind, types.StructType):
        struct = types.StructType()
        if len(set(kind.names)) < len(kind.names):
            raise ArchiveError(f"{name} has two fields of one name")
        for each in kind.fields:
            inner = nullable(each.dataType, f"{name}.{each.name}", levels + 1)
            struct.add(types.StructField(each.name, inner, True, each.metadata))
        return struct
    if isinstance(kind, types.ArrayType):
        return types.ArrayType(nullable(kind.elementType, f"{name}[]", levels + 1))
    if type(kind) not in _KINDS:
        raise ArchiveError(f"{name} has type {kind.simpleString()}, which is not read from JSON")
    return kind


def decode(payloads: pa.Array, struct: pa.StructType) -> tuple[pa.Array, pa.Array]:
    """Decode payloads; return (structs, with null for bad ones, reasons for these)."""
    texts: list[bytes] = payloads.to_pylist()
    problems: list[str | None] = [_unfit(text, LEVELS) for text in texts]
    fit = [at for at, why in enumerate(problems) if why is None]
    values: list[pa.Array] = []
    reasons: list[str | None] = []
    _decode([texts[at] for at in fit], pa.schema(list(struct)), values, reasons)
    for at, why in zip(fit, reasons, strict=True):
        problems[at] = why
    whole = pa.concat_arrays(values) if values else pa.array([], struct)
    if len(fit) < len(texts):
        places: list[int | None] = [None] * len(texts)
        for place, at in enumerate(fit):
            places[at] = place
        whole = whole.take(pa.array(places, pa.int64()))
    return whole, pa.array(problems, pa.string())


def _decode(
    texts: Sequence[bytes], schema: pa.Schema, values: list[pa.Array], problems: list[str | None]
) -> None:
    if not texts:
        return
    struct = pa.struct(list(schema))
    try:
        table = _parse(texts, pa.schema([_dated(field) for field in schema]), "ignore").cast(schema)
    except pa.ArrowInvalid as exc:
        if len(texts) == 1:
            values.append(pa.nulls(1, struct))
            problems.append(str(exc).partition(" in row ")[0])
            return
        half = len(texts) // 2
        _decode(texts[:half], schema, values, problems)
        _decode(texts[half:], schema, values, problems)
        return
    columns = [table.column(i).combine_chunks() for i in range(table.num_columns)]
    if not columns:
        values.append(pa.array([{}] * len(texts), struct))
    else:
        values.append(pa.StructArray.from_arrays(columns, fields=list(schema)))
    problems.extend([None] * len(texts))


def _dated(field: pa.Field) -> pa.Field:
    """Replace dates by times in a field: Arrow's reader expects a date to be a number of days."""
    kind = field.type
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_dated(each) for each in kind]))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_dated(kind.value_field)))
    return field.with_type(pa.timestamp("s")) if pa.types.is_date(kind) else field


def _unfit(text: bytes, levels: int) -> str | None:
    """Return why a payload must not go to Arrow's reader, None if it may.

    A payload that begins and ends like an object cannot continue in the next one, which begins like an
    object. So if the reader returns as many rows as payloads, each payload is one row.
    """
    bare = text.strip(b" \t\r\n")
    if not bare:
        return "JSON parse error: the payload is empty"
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            return "JSON parse error: no UTF-8"
    if not (bare.startswith(b"{") and bare.endswith(b"}")):
        return "JSON parse error: no object"
    if text.count(b"{") + text.count(b"[") > levels and _depth(text) > levels:
        return f"JSON parse error: more than {levels} levels"
    return None


def _depth(text: bytes) -> int:
    """Return the depth of brackets outside of strings, also of those after unmatched closing brackets."""
    brackets = np.frombuffer(_STRINGS.sub(b"", text).translate(None, _OTHERS), np.uint8)
    if not len(brackets):
        return 0
    opening = (brackets == ord("{")) | (brackets == ord("["))
    levels = np.concatenate(([0], np.cumsum(np.where(opening, 1, -1))))
    return int((levels - np.minimum.accumulate(levels)).max())


def _parse(texts: Sequence[bytes], schema: pa.Schema, unexpected: str) -> pa.Table:
    data = b"\n".join(texts)
    table = arrow_json.read_json(
        pa.BufferReader(data),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 16),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=schema, newlines_in_values=True, unexpected_field_behavior=unexpected
        ),
    )
    if table.num_rows != len(texts):
        raise pa.ArrowInvalid("JSON parse error: more than one value")
    return table


def infer(payloads: Sequence[bytes]) -> pa.Schema:
    """Infer the schema of the payloads that are JSON objects and not nested too deep for a column.

    Times stay texts; fields that are always null become texts.
    """
    schema = _infer([text for text in payloads if _unfit(text, INFERRED_LEVELS) is None])
    return pa.schema([field.with_type(_settled(field.type)) for field in schema])


def _infer(texts: Sequence[bytes]) -> pa.Schema:
    if not texts:
        return _ANYTHING
    try:
        return _parse(texts, _ANYTHING, "infer").schema
    except pa.ArrowInvalid:  # one of the payloads is bad
        if len(texts) == 1:
            return _ANYTHING
    half = len(texts) // 2
    first, second = _infer(texts[:half]), _infer(texts[half:])
    try:
        return pa.unify_schemas([first, second], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):  # a name has two types: keep the first
        return pa.schema([*first, *(field for field in second if field.name not in first.names)])


def _settled(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_settled(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    if pa.types.is_null(kind) or pa.types.is_temporal(kind):
        return pa.string()
    return kind
