"""The state of a replicated stream: what is written is read again, and anything else is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.go.uvarint import encode_uvarint
from gnats.jetstream.replica.streamstate import Reader, ReplicatedState, decode, encode
from gnats.store.index.seqset import SequenceSet

NUMBERS = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63, 2**64 - 1])


@st.composite
def ranges(draw: st.DrawFn) -> list[tuple[int, int]]:
    at, found = 1, []
    for gap, n in draw(st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 5000)), max_size=8)):
        found.append((at + gap, at + gap + n - 1))
        at += gap + n
    return found


@given(st.builds(ReplicatedState, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, ranges()))
def test_states(state: ReplicatedState) -> None:
    data = encode(state)
    assert decode(data) == state
    for end in range(7):
        with pytest.raises(ValueError, match=r"cut|not the state"):
            decode(data[:end])


@given(ranges())
def test_sets_of_sequences(deleted: list[tuple[int, int]]) -> None:
    """nats-server writes sets for blocks, and ranges between them."""
    out = bytearray([42, 1])
    for number in (1, 2, 3, 4, 5, len(deleted)):
        out += encode_uvarint(number)
    for number, (first, last) in enumerate(deleted):
        if number % 2:
            out.append(33)
            out += encode_uvarint(first)
            out += encode_uvarint(last - first + 1)
        else:
            members = SequenceSet()
            members.insert_range(first, last)
            out += members.encode()
    assert decode(bytes(out)) == ReplicatedState(1, 2, 3, 4, 5, deleted)


def test_sources() -> None:
    out = bytearray([42, 2])
    for number in (1, 2, 3, 4, 0, 1, 5):
        out += encode_uvarint(number)
    out += b"A > >"
    out += encode_uvarint(300)
    out += b"\x02id\x00"
    assert decode(bytes(out)).sources == {"A > >": (300, "id")}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"\x2a",
        b"\x2a\x03\x00\x00\x00\x00\x00\x00",
        b"\x2a\x01\x00\x00\x00\x00\x00\x01\x07",
        b"\x2a\x01\x00\x00\x00\x00\x00\x01\x21\x05\x00",
        b"\x2a\x01\x00\x00\x00\x00\x00\x01\x21\x05" + b"\xff" * 9 + b"\x01",
        b"\x2a\x01" + b"\xff" * 10 + b"\x01",
        b"\x2a\x02\x00\x00\x00\x00\x00\x01\x7fshort",
        b"\x2a\x01\x00\x00\x00\x00\x00\x01\x16\x02",
    ],
)
def test_what_is_no_state(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode(data)


def test_a_number_is_cut() -> None:
    with pytest.raises(ValueError, match="cut"):
        Reader(b"\xff", 0).number()
