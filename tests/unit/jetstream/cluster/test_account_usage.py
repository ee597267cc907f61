"""Messages of what accounts use, and the table of them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.jetstream.cluster.account_usage import (
    AccountUsage,
    UsageElsewhere,
    UsageError,
    decode_usage,
    encode_usage,
    usage_subject,
)

OWN, X, Y = "ownownow", "xxxxxxxx", "yyyyyyyy"
MOST = (1 << 63) - 1
SIZES = st.integers(0, MOST)
USAGES = st.builds(
    AccountUsage,
    st.dictionaries(st.text(max_size=5), st.tuples(SIZES, SIZES), min_size=1, max_size=4),
    st.integers(0, (1 << 64) - 1),
    st.integers(0, (1 << 64) - 1),
)


def first(memory: int, storage: int, more: int, length: int, name: bytes = b"") -> bytes:
    return struct.pack("<4QIQ", memory, storage, 1, 2, more, length) + name


@given(USAGES)
def test_what_is_written_can_be_read(usage: AccountUsage) -> None:
    assert decode_usage(encode_usage(usage)) == usage


def test_the_layout() -> None:
    usage = AccountUsage({"R1": (1, 2), "R3": (3, 4)}, 5, 6)
    assert encode_usage(usage) == (
        struct.pack("<4QIQ", 1, 2, 5, 6, 1, 2) + b"R1" + struct.pack("<3Q", 3, 4, 2) + b"R3"
    )


def test_old_servers_have_no_tiers() -> None:
    assert decode_usage(struct.pack("<4Q", 1, 2, 3, 4)) == AccountUsage({"": (1, 2)}, 3, 4)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        usage = decode_usage(data)
    except UsageError:
        return
    assert all(0 <= used <= MOST for pair in usage.tiers.values() for used in pair)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(31),
        first(1, 1, 0, 1),
        first(1, 1, 0, (1 << 64) - 1),
        first(1, 1, 1, 0) + struct.pack("<3Q", 1, 1, 1),
    ],
)
def test_a_damaged_message_changes_nothing(data: bytes) -> None:
    table = UsageElsewhere()
    table.heard(usage_subject("A", X), encode_usage(AccountUsage({"": (1, 2)})), OWN)
    with pytest.raises(UsageError):
        table.heard(usage_subject("A", X), data, OWN)
    assert table.used("A", "") == (1, 2)


def test_wrong_numbers() -> None:
    """More tiers are announced than there are, and a size is below 0."""
    found = decode_usage(first((1 << 64) - 5, 7, (1 << 32) - 1, 2, b"R1"))
    assert found.tiers == {"R1": (0, 7)}


def test_servers_are_added_and_the_last_message_of_each_counts() -> None:
    table = UsageElsewhere()
    table.heard(usage_subject("A.b", X), encode_usage(AccountUsage({"R1": (1, 2), "R3": (3, 4)}, 9, 1)), OWN)
    table.heard(usage_subject("A.b", Y), encode_usage(AccountUsage({"R1": (10, 20)}, 1, 1)), OWN)
    assert (table.used("A.b", "R1"), table.used("A.b", "R3"), table.used("A.b", "")) == (
        (11, 22),
        (3, 4),
        (0, 0),
    )
    assert (table.tiers("A.b"), table.requests("A.b")) == ({"R1", "R3"}, (10, 2))
    table.heard(usage_subject("A.b", X), encode_usage(AccountUsage({"R1": (5, 5)}, 9, 1)), OWN)
    assert (table.used("A.b", "R1"), table.used("A.b", "R3")) == ((15, 25), (0, 0))
    table.heard(usage_subject("A.b", X), encode_usage(AccountUsage({"R1": (0, 0)})), OWN)
    assert table.used("A.b", "R1") == (10, 20)
    assert table.used("B", "R1") == (0, 0)


def test_sums_do_not_grow_beyond_what_limits_can_be() -> None:
    table = UsageElsewhere()
    for peer in (X, Y):
        table.heard(usage_subject("A", peer), encode_usage(AccountUsage({"": (MOST, MOST)})), OWN)
    assert table.used("A", "") == (MOST, MOST)


def test_a_message_about_this_server_is_ignored() -> None:
    table = UsageElsewhere()
    table.heard(usage_subject("A", OWN), encode_usage(AccountUsage({"": (1, 1)})), OWN)
    assert table.used("A", "") == (0, 0)


@pytest.mark.parametrize(
    "subject", [b"$JSC.ARU.A", b"$JSC.ARU..xxxxxxxx", b"$JSC.ARU.A.x", b"$JSC.ARU.A.\xff"]
)
def test_a_subject_without_a_server_is_refused(subject: bytes) -> None:
    with pytest.raises(UsageError):
        UsageElsewhere().heard(subject, encode_usage(AccountUsage({"": (1, 1)})), OWN)
