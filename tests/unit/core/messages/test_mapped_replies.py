"""The table of mapped replies that a connection has."""

from __future__ import annotations

import pytest

from gnats.core.messages.mapped_replies import MappedTable

SECOND = 1_000_000_000
PREFIX = b"_GR_.AAAAAA.BBBBBB."


@pytest.fixture
def table() -> MappedTable:
    return MappedTable()


def test_the_plain_reply_finds_the_mapped_one(table: MappedTable) -> None:
    for n in range(100):
        table.note(PREFIX + b"r.%d" % n, 0)
    assert [table.find(b"r.%d" % n, 0) for n in range(100)] == [PREFIX + b"r.%d" % n for n in range(100)]
    assert (table.find(b"r.100", 0), table.find(b"r.", 0), table.find(b"", 0)) == (None, None, None)


def test_the_last_mapped_reply_counts(table: MappedTable) -> None:
    other = b"_GR_.CCCCCC.DDDDDD.r"
    table.note(PREFIX + b"r", 0)
    table.note(other, 1)
    assert table.find(b"r", 1) == other
    assert len(table) == 1


def test_replies_are_forgotten(table: MappedTable) -> None:
    table.note(PREFIX + b"early", 0)
    table.note(PREFIX + b"again", SECOND)
    table.note(PREFIX + b"late", 2 * SECOND)
    table.note(PREFIX + b"again", 3 * SECOND)
    assert table.find(b"early", 4 * SECOND)
    assert not table.find(b"early", 4 * SECOND + 1)
    assert len(table) == 3
    table.sweep(6 * SECOND)
    assert len(table) == 2
    table.sweep(6 * SECOND + 1)
    assert (len(table), table.find(b"again", 7 * SECOND)) == (1, PREFIX + b"again")
    table.note(PREFIX + b"new", 8 * SECOND)
    assert len(table) == 1
    table.sweep(13 * SECOND)
    assert (len(table), table.nbytes) == (0, 0)


def test_memory_is_bounded(table: MappedTable) -> None:
    """The oldest go first; one that is used again is not old."""
    count = 200_000
    table.note(PREFIX + b"used", 0)
    for n in range(count):
        table.note(PREFIX + b"r.%d" % n, 0)
        if n % 1000 == 0:
            table.note(PREFIX + b"used", 0)
    assert table.nbytes <= (4 << 20) + 1024
    assert 10_000 < len(table) < count
    assert table.find(b"used", 0)
    assert table.find(b"r.%d" % (count - 1), 0)
    assert not table.find(b"r.0", 0)
