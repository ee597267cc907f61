"""The digest of messages."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnats.archive.digest import Digest
from gnats.archive.writer import FILE_SCHEMA

texts = st.text(max_size=5)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "sequence": st.integers(1, 9),
            "subject": texts,
            "time_ns": st.integers(0, 5),
            "headers": st.none()
            | st.lists(
                st.tuples(texts, st.lists(texts, max_size=2)), max_size=3, unique_by=lambda pair: pair[0]
            ),
            "payload": st.binary(max_size=5),
        }
    ),
    max_size=8,
)
COLUMNS = pa.schema(
    [FILE_SCHEMA.field(name) for name in ("sequence", "subject", "time_ns", "headers", "payload")]
)


def digest(*batches: pa.RecordBatch) -> str:
    found = Digest()
    for batch in batches:
        found.update(batch)
    return found.hex()


@given(rows, st.data())
@settings(max_examples=100)
def test_it_does_not_matter_how_messages_are_cut_into_batches(
    messages: list[object], data: st.DataObject
) -> None:
    batch = pa.RecordBatch.from_pylist(messages, COLUMNS)
    at = data.draw(st.integers(0, len(messages)))
    again = pa.RecordBatch.from_pylist(messages[at:], COLUMNS)
    assert digest(batch) == digest(batch.slice(0, at), batch.slice(at)) == digest(batch.slice(0, at), again)


@given(rows, rows)
@settings(max_examples=100)
def test_other_messages_have_another_one(some: list[object], others: list[object]) -> None:
    same = digest(pa.RecordBatch.from_pylist(some, COLUMNS)) == digest(
        pa.RecordBatch.from_pylist(others, COLUMNS)
    )
    assert same == (some == others)


@pytest.mark.parametrize(
    "one, other", [(None, []), ([("a", [])], [("a", [""])]), ([("a", ["b"])], [("", ["ab"])])]
)
def test_headers_that_look_alike(one: object, other: object) -> None:
    row = {"sequence": 1, "subject": "", "time_ns": 0, "payload": b""}
    first, second = (pa.RecordBatch.from_pylist([row | {"headers": each}], COLUMNS) for each in (one, other))
    assert digest(first) != digest(second)
