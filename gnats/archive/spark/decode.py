"""Payloads of JSON as columns.

Whole batches are given to Arrow's JSON reader. It stops at the first payload that it does not take, so a
batch with such a one is halved until that is alone, and has the reader's reason beside it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import json as arrow_json

_ANYTHING = pa.schema([])


def decode(payloads: pa.Array, struct: pa.StructType) -> tuple[pa.Array, pa.Array]:
    """Payloads as structs, and why those that are none are null."""
    texts: list[bytes] = payloads.to_pylist()
    values: list[pa.Array] = []
    problems: list[str | None] = []
    _decode(texts, pa.schema(list(struct)), values, problems)
    whole = pa.concat_arrays(values) if values else pa.array([], struct)
    return whole, pa.array(problems, pa.string())


def _decode(
    texts: Sequence[bytes], schema: pa.Schema, values: list[pa.Array], problems: list[str | None]
) -> None:
    if not texts:
        return
    struct = pa.struct(list(schema))
    why = _not_an_object(texts)
    if not why:
        try:
            table = _parse(texts, schema, "ignore")
        except pa.ArrowInvalid as exc:
            why = str(exc).partition(" in row ")[0]
        else:
            columns = [table.column(i).combine_chunks() for i in range(table.num_columns)]
            if not columns:
                values.append(pa.array([{}] * len(texts), struct))
            else:
                values.append(pa.StructArray.from_arrays(columns, fields=list(schema)))
            problems.extend([None] * len(texts))
            return
    if len(texts) == 1:
        values.append(pa.nulls(1, struct))
        problems.append(why)
        return
    half = len(texts) // 2
    _decode(texts[:half], schema, values, problems)
    _decode(texts[half:], schema, values, problems)


def _not_an_object(texts: Sequence[bytes]) -> str:
    """Why one of them is no object, as far as its ends show it. One that begins and ends as an object
    cannot go on in the next, which begins as one, so as many rows as payloads are one row for each."""
    for text in texts:
        bare = text.strip(b" \t\r\n")
        if not (bare.startswith(b"{") and bare.endswith(b"}")):
            return "JSON parse error: the payload is empty" if not bare else "JSON parse error: no object"
    return ""


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
    """The schema of those that are JSON objects. Times are left as texts, and so is what is always null."""
    schema = _infer(payloads)
    return pa.schema([field.with_type(_settled(field.type)) for field in schema])


def _infer(texts: Sequence[bytes]) -> pa.Schema:
    if not texts:
        return _ANYTHING
    if not _not_an_object(texts):
        try:
            return _parse(texts, _ANYTHING, "infer").schema
        except pa.ArrowInvalid:
            pass  # one of them is none
    if len(texts) == 1:
        return _ANYTHING
    half = len(texts) // 2
    first, second = _infer(texts[:half]), _infer(texts[half:])
    try:
        return pa.unify_schemas([first, second], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):  # one name with two types: the one that came first
        return pa.schema([*first, *(field for field in second if field.name not in first.names)])


def _settled(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_settled(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    if pa.types.is_null(kind) or pa.types.is_temporal(kind):
        return pa.string()
    return kind
