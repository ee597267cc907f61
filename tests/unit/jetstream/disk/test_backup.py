"""Backups written and read in pieces, and malformed ones."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st
from support.backups import Entry, archive, backup, entries, state

from gnats.codec import s2
from gnats.jetstream.disk.backup import BackupError, BackupReader, BackupWriter
from gnats.store.store import MemStore

MESSAGES = st.lists(
    st.tuples(
        st.integers(1, 5), st.sampled_from([b"a", b"b.c"]), st.binary(max_size=60), st.binary(max_size=400)
    ),
    max_size=30,
)


def restore(data: bytes, cuts: list[int], store: MemStore) -> BackupReader:
    reader = BackupReader(max_payload=1 << 20, max_subject=100)
    known = False
    at = 0
    for end in (*sorted({cut % (len(data) + 1) for cut in cuts} - {0, len(data)}), len(data), len(data)):
        reader.feed(data[at:end])
        at = end
        if reader.version == 1:
            while reader.take(100):
                continue
        elif reader.version == 2:
            if not known:
                known = reader.entry() is not None
                reader.begin(1)
            while known and not reader.is_complete and reader.store_into(store, 200):
                continue
    return reader


@settings(max_examples=200)
@given(messages=MESSAGES, cuts=st.lists(st.integers(0, 5000), max_size=8), size=st.integers(1, 3000))
def test_a_backup_holds_what_the_store_held(
    messages: list[tuple[int, bytes, bytes, bytes]], cuts: list[int], size: int
) -> None:
    store, again = MemStore(), MemStore()
    held = []
    for gap, subject, header, payload in messages:
        store.skip(n=gap)
        held.append((store.store_msg(subject, payload, header), subject, header, payload))
    last = store.state().last_seq
    writer = BackupWriter(store, last=last)
    writer.add(b"state.json", b"{}", 1)
    store.store_msg(b"later", b"x")
    data = b""
    while piece := writer.read(size):
        assert len(piece) == size or not writer.read(size)
        data += piece
    found = [entry for entry in entries(data) if entry.seq]
    assert [(each.seq, each.name, each.header, each.payload) for each in found] == held
    reader = restore(data, cuts, again)
    assert reader.is_complete
    for seq, subject, header, payload in held:
        assert (*again.get(seq)[2:],) == (subject, header, payload)
    assert again.state().msgs == len(held)


WHOLE = archive(state(1, 3), *(Entry(b"s", b"x" * 50, 1, seq, b"h") for seq in (1, 2, 5)))


@settings(max_examples=500)
@given(
    flips=st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, len(WHOLE)),
    cuts=st.lists(st.integers(0, 500), max_size=5),
    compressed=st.booleans(),
)
def test_what_is_no_backup_is_an_error(
    flips: list[tuple[int, int]], cut: int, cuts: list[int], compressed: bool
) -> None:
    data = bytearray(s2.encode(WHOLE) if compressed else WHOLE)
    for at, value in flips:
        data[at % len(data)] = value
    data = data[:cut]
    store = MemStore()
    with contextlib.suppress(BackupError):
        restore(bytes(data) if compressed else s2.encode(bytes(data)), cuts, store)
    found = store.state()
    assert found.msgs <= 3


@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=3))
def test_any_bytes_are_read_to_their_end(data: bytes, cuts: list[int]) -> None:
    for each in (data, s2.encode(data), s2.encode(b"NATSARC1" + data)):
        try:
            restore(each, cuts, MemStore())
        except BackupError:
            continue


def test_messages_are_checked_in_large_backups() -> None:
    data = backup(state(1, 2000), *(Entry(b"s", b"%d" % seq * 300, 1, seq) for seq in range(1, 2001)))
    store = MemStore()
    assert restore(data, list(range(0, len(data), 999)), store).is_complete
    assert [store.get(seq)[4] for seq in (1, 2000)] == [b"1" * 300, b"2000" * 300]
