"""The messages and files of Raft groups: what is written is read again, and anything else is refused."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.raft import messages

NUMBERS = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63, 2**64 - 1])
PEERS = st.binary(min_size=8, max_size=8).filter(any) | st.just(b"")
NAMED = st.binary(min_size=8, max_size=8).filter(any)
ENTRIES = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=300)), max_size=5)
AN_ENTRY = messages.write_append_entry(b"leader-1", 7, 5, 6, 9, 8, [(0, b"one"), (2, b""), (5, b"leader-2")])


def uvarint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


@given(PEERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, ENTRIES)
def test_append_entries(
    leader: bytes,
    term: int,
    commit: int,
    pterm: int,
    pindex: int,
    lterm: int,
    entries: list[tuple[int, bytes]],
) -> None:
    data = messages.write_append_entry(leader, term, commit, pterm, pindex, lterm, entries)
    plain = struct.pack("<8s4QH", leader, term, commit, pterm, pindex, len(entries))
    plain += b"".join(struct.pack("<IB", len(text) + 1, kind) + text for kind, text in entries)
    assert data == plain + uvarint(lterm)
    assert messages.read_append_entry(data) == (leader, term, commit, pterm, pindex, lterm, entries)
    assert messages.read_append_entry(plain)[5] == 0, "older servers write no term of the leader"


def test_an_append_entry_that_is_cut() -> None:
    for n in range(len(AN_ENTRY) - 1):
        with pytest.raises(ValueError, match="not an append entry"):
            messages.read_append_entry(AN_ENTRY[:n])


def test_an_append_entry_that_is_changed() -> None:
    """It is refused or read as another one; no byte outside of it is read (the sanitizers look)."""
    chance = random.Random(1)
    refused = 0
    for _ in range(20_000):
        data = bytearray(AN_ENTRY)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        try:
            entries = messages.read_append_entry(bytes(data))[6]
        except ValueError:
            refused += 1
        else:
            assert sum(5 + len(text) for _, text in entries) <= len(data) - 42
    assert refused > 1000


def test_too_many_entries() -> None:
    most = [(0, b"")] * 0xFFFF
    read = messages.read_append_entry(messages.write_append_entry(b"", 0, 0, 0, 0, 0, most))
    assert len(read[6]) == len(most)
    with pytest.raises(ValueError, match="more than 65535 entries"):
        messages.write_append_entry(b"", 0, 0, 0, 0, 0, [*most, (0, b"")])


@given(st.integers(0, 2**31 - 1), st.lists(NAMED, max_size=9), st.integers(0, 65535))
def test_peer_states(size: int, peers: list[bytes], extension: int) -> None:
    data = messages.write_peer_state(size, peers, extension)
    assert data == struct.pack("<II", size, len(peers)) + b"".join(peers) + struct.pack("<H", extension)
    assert messages.read_peer_state(data) == (size, peers, extension)
    assert messages.read_peer_state(data[:-2]) == (size, peers, 0), "older servers write no extension"
    for n in range(len(data) - 2):
        with pytest.raises(ValueError, match="not a peer state"):
            messages.read_peer_state(data[:n])


@pytest.mark.parametrize("n", [2**32 - 1, 2**31, 2**29, 2])
def test_a_peer_state_that_names_more_peers_than_there_are(n: int) -> None:
    with pytest.raises(ValueError, match="not a peer state"):
        messages.read_peer_state(struct.pack("<II", 3, n) + b"one-peer" + b"\0\0")


@given(NUMBERS, NUMBERS, st.binary(max_size=40), st.binary(max_size=200))
def test_snapshots(term: int, index: int, peers: bytes, data: bytes) -> None:
    file = messages.write_snapshot(term, index, peers, data, b"group")
    assert file[:-8] == struct.pack("<QQI", term, index, len(peers)) + peers + data
    assert messages.read_snapshot(file, b"group") == (term, index, peers, data)
    for wrong in (file[:-1], file + b"x", file[:-9], b"", bytes([file[0] ^ 1]) + file[1:]):
        with pytest.raises(ValueError, match="not a snapshot of this group"):
            messages.read_snapshot(wrong, b"group")
    with pytest.raises(ValueError, match="not a snapshot of this group"):
        messages.read_snapshot(file, b"other")


@given(NUMBERS, PEERS)
def test_terms_and_votes(term: int, vote: bytes) -> None:
    data = messages.write_term_vote(term, vote)
    assert data == struct.pack("<Q", term) + vote
    assert messages.read_term_vote(data) == (term, vote)
    with pytest.raises(ValueError, match="not a term and a vote"):
        messages.read_term_vote(data[:7])


@pytest.mark.parametrize("name", [b"short", b"too long by far"])
def test_a_name_that_no_peer_has(name: bytes) -> None:
    with pytest.raises(ValueError, match="is not the name of a peer"):
        messages.write_term_vote(1, name)
