"""Sequences at the ends of their range: a refusal changes nothing; everything else survives a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnats.store.format.codec import decode_consumer, decode_index, encode_consumer, encode_index
from gnats.store.format.highway import checksum
from gnats.store.store import FileStore, MemStore, StoreFailure

LAST = 2**62 - 1
"""No message gets a greater sequence: a record has 62 bits for it."""
ENDS = [0, 1, 2, 3, 4, 5, 2**31, 2**32, LAST - 1, LAST, LAST + 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]
Store = FileStore | MemStore


@pytest.fixture(params=["file", "memory"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(kind: str, folder: Path, **settings: Any) -> Store:
    return MemStore("S", **settings) if kind == "memory" else FileStore(str(folder), "S", **settings)


def contents(store: Store) -> dict[int, bytes]:
    found = {}
    message = store.get_next()
    while message:
        found[message[0]] = message[4]
        message = store.get_next((), message[0] + 1)
    return found


def refused(work: Callable[[], Any]) -> None:
    with pytest.raises(StoreFailure, match="there are no more sequences"):
        work()


def test_the_last_sequence_is_the_last(kind: str, tmp_path: Path) -> None:
    store = opened(kind, tmp_path, first_seq=LAST - 1)
    assert store.store_msg(b"a", b"1") == LAST - 1
    assert store.store_msg(b"a", b"2") == LAST
    refused(lambda: store.store_msg(b"a", b"3"))
    refused(lambda: store.skip())
    assert contents(store) == {LAST - 1: b"1", LAST: b"2"}
    last = store.get_last(b"a")
    assert last and last[0] == LAST and store.pending(LAST) == 1
    store.close()
    if kind == "file":
        for _ in range(2):
            with_index = FileStore(str(tmp_path), "S")
            assert contents(with_index) == {LAST - 1: b"1", LAST: b"2"}
            refused(lambda: with_index.store_msg(b"a"))  # noqa: B023
            with_index.close()
            (tmp_path / "msgs" / "index.db").unlink()


def test_a_store_may_begin_behind_the_last_sequence_but_no_further(kind: str, tmp_path: Path) -> None:
    for first in (LAST + 2, 2**63, 2**64 - 1):
        refused(lambda: opened(kind, tmp_path, first_seq=first))  # noqa: B023
    store = opened(kind, tmp_path, first_seq=LAST + 1)
    refused(lambda: store.store_msg(b"a"))
    assert (store.state().first_seq, store.state().last_seq) == (LAST + 1, LAST)
    store.close()


def test_a_purge_goes_as_far_as_there_are_sequences(kind: str, tmp_path: Path) -> None:
    store = opened(kind, tmp_path)
    store.store_msg(b"a", b"1")
    for seq in (LAST + 2, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1):
        refused(lambda: store.purge_msgs(seq=seq))  # noqa: B023
        refused(lambda: store.compact_to(seq))  # noqa: B023
        assert contents(store) == {1: b"1"}
    assert store.purge_msgs(seq=LAST) == 1
    assert store.store_msg(b"a", b"2") == LAST
    assert store.purge_msgs(seq=LAST + 1) == 1
    refused(lambda: store.store_msg(b"a"))
    store.close()
    if kind == "file":
        again = FileStore(str(tmp_path), "S")
        assert (again.state().first_seq, again.state().last_seq) == (LAST + 1, LAST)
        again.close()


def test_as_many_are_skipped_as_there_are(kind: str, tmp_path: Path) -> None:
    store = opened(kind, tmp_path)
    store.store_msg(b"a", b"1")
    for n in (LAST, 2**63, 2**64 - 1):
        refused(lambda: store.skip(n=n))  # noqa: B023
    store.skip(n=2**40)
    assert store.store_msg(b"a", b"2") == 2**40 + 2
    store.skip(n=LAST - 2**40 - 3)
    assert store.store_msg(b"a", b"3") == LAST
    assert store.deleted() == [(2, 2**40 + 1), (2**40 + 3, LAST - 1)]
    assert store.state().num_deleted == LAST - 3
    store.close()
    if kind == "file":
        (tmp_path / "msgs" / "index.db").unlink()
        again = FileStore(str(tmp_path), "S")
        assert contents(again) == {1: b"1", 2**40 + 2: b"2", LAST: b"3"}
        again.close()


CALLS: dict[str, Callable[[Store, int], Any]] = {
    "get": lambda store, seq: store.get(seq),
    "next": lambda store, seq: store.get_next((), seq),
    "next of": lambda store, seq: store.get_next((b"a.1",), seq),
    "next like": lambda store, seq: store.get_next((b"a.*",), seq),
    "previous": lambda store, seq: store.get_prev((), seq),
    "previous of": lambda store, seq: store.get_prev((b"a.1",), seq),
    "pending": lambda store, seq: store.pending(seq),
    "pending of": lambda store, seq: store.pending(seq, (b"a.1",)),
    "pending lasts": lambda store, seq: store.pending(seq, (b"a.*",), True),
    "lasts": lambda store, seq: store.last_seqs((b"a.*",), seq),
    "remove": lambda store, seq: store.remove_msg(seq),
    "erase": lambda store, seq: store.remove_msg(seq, True),
    "purge subject": lambda store, seq: store.purge_msgs(b"a.1", seq),
    "purge like": lambda store, seq: store.purge_msgs(b"a.*", seq),
    "keep": lambda store, seq: store.purge_msgs(b"a.1", 0, seq),
    "keep all": lambda store, seq: store.purge_msgs(b"", 0, seq),
    "truncate": lambda store, seq: store.truncate_to(seq),
    "compact": lambda store, seq: store.compact_to(seq),
    "next sequence": lambda store, seq: store.store_msg(b"a.1", seq=seq),
    "skip to": lambda store, seq: store.skip(seq, 1),
    "skip": lambda store, seq: store.skip(0, seq),
}


@pytest.mark.parametrize("first", [1, LAST - 3])
@pytest.mark.parametrize("call", CALLS)
def test_every_call_takes_every_number(kind: str, tmp_path: Path, call: str, first: int) -> None:
    for number in ENDS:
        folder = tmp_path / str(number)
        folder.mkdir()
        store = opened(kind, folder, first_seq=first, block_size=100)
        for index in range(4):
            store.store_msg(b"a.%d" % (index % 2), b"%d" % index * 20)
        try:
            CALLS[call](store, number)
        except StoreFailure as exc:
            assert not store.failure(), exc
        state, found = store.state(), contents(store)
        assert state.msgs == len(found)
        assert state.last_seq <= LAST and state.first_seq <= state.last_seq + 1
        store.close()
        if kind == "file":
            (folder / "msgs" / "index.db").unlink(missing_ok=True)
            again = FileStore(str(folder), "S")
            assert contents(again) == found
            assert again.state().last_seq == state.last_seq
            again.close()
    with pytest.raises(OverflowError):
        CALLS[call](store, 2**64)
    with pytest.raises(OverflowError):
        CALLS[call](store, -1)


@pytest.mark.parametrize("last", [2**30, 2**40, LAST, LAST + 1, 2**63, 2**64 - 1])
def test_an_index_that_cannot_be_is_not_believed(tmp_path: Path, last: int) -> None:
    """The store neither uses such an index.db nor allocates memory for its numbers."""
    store = FileStore(str(tmp_path), "S")
    store.store_msg(b"a", b"1")
    store.close()
    path = tmp_path / "msgs" / "index.db"
    state, subjects, blocks, end = decode_index(path.read_bytes()[:-8])
    index, size, first, first_ts, _, last_ts, deleted, ttls, schedules = blocks[0]
    blocks[0] = index, size, first, first_ts, last, last_ts, deleted, ttls, schedules
    data = encode_index((last, *state[1:4], last, state[5]), subjects, blocks, end)
    path.write_bytes(data + checksum(b"S", data))
    said: list[str] = []
    again = FileStore(str(tmp_path), "S", warn=said.append)
    assert any("inconsistent" in text for text in said)
    assert contents(again) == {1: b"1"}
    assert again.store_msg(b"a") == 2
    again.close()


def test_the_state_of_a_consumer_is_made_to_fit() -> None:
    """After it, the ack floor is not beyond the delivered sequence, and pending messages lie between."""
    end = 2**63 - 1
    data = encode_consumer((1, 1), (5, 7), [(9, 6, 0)], [(9, 1)], 0)
    assert decode_consumer(data) == ((5, 7), (5, 7), [], [])
    waiting = [(5, 6, 0), (6, 6, 0), (9, 9, 0), (10, 9, 0), (8, 10, 0)]
    data = encode_consumer((9, 9), (5, 5), waiting, [(6, 2), (10, 1)], 0)
    delivered, floor, pending, redelivered = decode_consumer(data)
    assert (delivered, floor) == ((9, 9), (5, 5))
    assert [(seq, dseq) for seq, dseq, _ in pending] == [(6, 6), (9, 9)]
    assert redelivered == [(6, 2)]
    assert decode_consumer(encode_consumer((end, end), (end, end), [], [], 0))[0] == (end, end)
    more = end + 1
    for numbers in (((more, 1), (1, 1)), ((1, more), (1, 1)), ((1, 1), (more, 1)), ((1, 1), (1, more))):
        with pytest.raises(ValueError):
            decode_consumer(encode_consumer(*numbers, [], [], 0))


def test_gaps_behind_a_message_that_is_gone(kind: str, tmp_path: Path) -> None:
    """A block stores its messages' distances from its first one in 32 bits."""
    store = opened(kind, tmp_path)
    kept = {}
    for step in range(300):
        seq = store.store_msg(b"a", b"%d" % step)
        if step < 258:
            assert store.remove_msg(seq)
        else:
            kept[seq] = b"%d" % step
        store.skip(n=2**24 - 2)
    assert max(kept) > 2**32
    for _ in range(2):
        assert {seq: store.get(seq)[4] for seq in kept} == contents(store) == kept
        if kind == "file":
            store.close()
            (tmp_path / "msgs" / "index.db").unlink()
            store = opened(kind, tmp_path)
    store.close()
