"""Limits, expiry, durability and maintenance of stores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gnats.go.text import SECOND
from gnats.store.block_size import dyn_block_size
from gnats.store.format.highway import checksum
from gnats.store.store import FileStore, MemStore, StoreFailure


@pytest.fixture(params=["file", "memory"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(kind: str, folder: Path, **settings: Any) -> FileStore | MemStore:
    if kind == "memory":
        return MemStore("S", **settings)
    return FileStore(str(folder), "S", **settings)


def sequences(store: FileStore | MemStore) -> list[int]:
    found = []
    message = store.get_next()
    while message:
        found.append(message[0])
        message = store.get_next((), message[0] + 1)
    return found


def test_discard_new_refuses_what_is_over_a_limit(kind: str, tmp_path: Path) -> None:
    store = opened(kind, tmp_path, max_msgs=2, discard_new=True)
    store.store_msg(b"a")
    store.store_msg(b"b")
    with pytest.raises(StoreFailure, match="maximum messages exceeded"):
        store.store_msg(b"c")
    store.update_config(max_bytes=200, discard_new=True)
    with pytest.raises(StoreFailure, match="maximum bytes exceeded"):
        store.store_msg(b"c", b"x" * 200)
    store.update_config(max_msgs_per_subject=1, discard_new=True, discard_new_per_subject=True)
    with pytest.raises(StoreFailure, match="maximum messages per subject exceeded"):
        store.store_msg(b"a")
    # A rollup makes room for itself.
    assert store.store_msg(b"a", b"", b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n") == 3
    # Without discard_new_per_subject, the limit of the subject removes its older message.
    store.update_config(max_msgs=2, max_msgs_per_subject=1, discard_new=True)
    assert store.store_msg(b"a") == 4
    assert sequences(store) == [2, 4]
    store.close()


def test_the_subjects_own_limit_finds_the_oldest(kind: str, tmp_path: Path) -> None:
    store = opened(kind, tmp_path, block_size=2000, max_msgs_per_subject=3)
    for i in range(600):
        store.store_msg(b"s.%d" % (i % 20), flush=False)
    store.flush_pending()
    assert sequences(store) == list(range(541, 601))
    store.maintain(idle=0)
    for i in range(20):
        store.store_msg(b"s.%d" % i)
    assert sequences(store) == list(range(561, 621))
    store.close()


def test_only_the_next_sequence_is_stored(kind: str, tmp_path: Path) -> None:
    store = opened(kind, tmp_path, first_seq=100)
    assert store.store_msg(b"a") == 100
    assert store.store_msg(b"a", seq=101) == 101
    with pytest.raises(StoreFailure, match="not the next sequence"):
        store.store_msg(b"a", seq=104)
    store.skip(102, 2)
    assert store.store_msg(b"a", seq=104) == 104
    assert store.deleted() == [(102, 103)]
    store.close()


@pytest.mark.parametrize("index", ["kept", "thw.db", "index.db", "both"])
def test_messages_expire_by_their_ttl_after_reopening(tmp_path: Path, index: str) -> None:
    store = FileStore(str(tmp_path), "S", block_size=2000, allow_msg_ttl=True)
    for i in range(1, 101):
        ttl = i % 10
        hdr = b"NATS/1.0\r\nNats-TTL: %ds\r\n\r\n" % ttl if ttl else b""
        store.store_msg(b"s", b"", hdr, ts=SECOND, ttl=ttl)
    assert store.expire_msgs(2 * SECOND) == 10
    store.close()
    for name in ("index.db", "thw.db"):
        if index in (name, "both"):
            (tmp_path / "msgs" / name).unlink()
    store = FileStore(str(tmp_path), "S", block_size=2000, allow_msg_ttl=True)
    assert store.state().msgs in (90, 100)
    store.expire_msgs(2 * SECOND)
    assert store.state().msgs == 90
    assert store.expire_msgs(5 * SECOND) == 30
    assert store.expire_msgs(1000 * SECOND) == 50
    assert sequences(store) == list(range(10, 101, 10))
    store.close()


def test_a_negative_ttl_keeps_a_message_from_ageing(kind: str, tmp_path: Path) -> None:
    store = opened(kind, tmp_path, max_age=SECOND, allow_msg_ttl=True)
    for i in range(1, 7):
        never = i % 3 == 0
        hdr = b"NATS/1.0\r\nNats-TTL: never\r\n\r\n" if never else b""
        store.store_msg(b"s", b"", hdr, ts=i * SECOND, ttl=-1 if never else 0)
    assert store.expire_msgs(5 * SECOND) == 3
    assert sequences(store) == [3, 5, 6]
    assert store.expire_msgs(100 * SECOND) == 1
    assert sequences(store) == [3, 6]
    store.close()


def test_messages_age_that_have_the_sequences_of_those_that_never_did(kind: str, tmp_path: Path) -> None:
    store = opened(kind, tmp_path, max_age=SECOND, allow_msg_ttl=True)
    for _ in range(6):
        store.store_msg(b"s", b"", b"NATS/1.0\r\nNats-TTL: never\r\n\r\n", ts=SECOND, ttl=-1)
    assert store.expire_msgs(100 * SECOND) == 0
    store.truncate_to(2)
    for _ in range(4):
        store.store_msg(b"s", b"", ts=SECOND)
    assert store.expire_msgs(100 * SECOND) == 4
    assert sequences(store) == [1, 2]
    store.close()


def test_an_erased_message_is_not_in_the_file(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path), "S")
    for word in (b"first", b"secret", b"last"):
        store.store_msg(b"s", word * 10)
    content = (tmp_path / "msgs" / "1.blk").read_bytes()
    assert b"secret" in content
    assert store.remove_msg(2, erase=True)
    after = (tmp_path / "msgs" / "1.blk").read_bytes()
    assert b"secret" not in after
    assert b"first" in after and b"last" in after
    assert sequences(store) == [1, 3]
    store.close()


def test_sparse_blocks_are_written_anew(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path), "S", block_size=64 * 1024, max_msgs_per_subject=1)
    for i in range(5000):
        store.store_msg(b"key.%d" % (i % 50 if i % 100 else i), b"x" * 100, flush=False)
    store.flush_pending()

    def size() -> int:
        return sum(path.stat().st_size for path in (tmp_path / "msgs").glob("*.blk"))

    before, kept = size(), sequences(store)
    while store.maintain():
        pass
    assert size() < before / 3
    assert sequences(store) == kept
    store.close()
    (tmp_path / "msgs" / "index.db").unlink()
    store = FileStore(str(tmp_path), "S", block_size=64 * 1024, max_msgs_per_subject=1)
    assert sequences(store) == kept
    store.close()


def test_full_blocks_are_compressed_and_read(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path), "S", block_size=64 * 1024, compression="s2")
    for i in range(3000):
        store.store_msg(b"s.%d" % (i % 3), b"the same words again and again " * 4, flush=False)
    store.flush_pending()
    while store.maintain(idle=0):
        pass
    blocks = sorted((tmp_path / "msgs").glob("*.blk"), key=lambda path: int(path.stem))
    assert all(path.read_bytes()[:3] == b"cmp" for path in blocks[:-1])
    assert all(path.stat().st_size < 20_000 for path in blocks[:-1])
    assert sequences(store) == list(range(1, 3001))
    store.remove_msg(5)
    store.close()
    store = FileStore(str(tmp_path), "S", block_size=64 * 1024, compression="s2")
    assert store.get(1000)[4] == b"the same words again and again " * 4
    assert store.state().msgs == 2999
    store.close()


def test_a_change_of_compression_is_for_blocks_that_are_full_afterwards(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path), "S", block_size=8 * 1024)

    def packed(count: int) -> list[bool]:
        while len(blocks := list((tmp_path / "msgs").glob("*.blk"))) < count:
            store.store_msg(b"s", b"the same words again and again " * 4)
        store.maintain(rewrites=100)
        blocks.sort(key=lambda path: int(path.stem))
        return [path.read_bytes()[:3] == b"cmp" for path in blocks]

    assert packed(3) == [False, False, False]
    store.compress("s2")
    assert packed(5) == [False, False, True, True, False]
    store.compress("none")
    assert packed(7) == [False, False, True, True, False, False, False]
    assert sequences(store) == list(range(1, store.state().last_seq + 1))
    with pytest.raises(ValueError):
        store.compress("lz4")
    store.close()


WRITER = """
import sys
from gnats.store.format.highway import checksum
from gnats.store.store import FileStore
store = FileStore(sys.argv[1], "S", block_size=32 * 1024, max_msgs_per_subject=int(sys.argv[2]))
n = store.state().last_seq
while True:
    for _ in range(7):
        n += 1
        store.store_msg(b"s.%d" % (n % 11), b"%d " % n * 20, flush=False)
    store.flush_pending()
    print(n, flush=True)
    if n % 5 == 0:
        store.remove_msg(n - 3)
        print(-(n - 3), flush=True)
    if n % 30 == 0:
        store.maintain(idle=0)
    if n % 70 == 0:
        store.write_state()
"""


@pytest.mark.parametrize("per_subject", [-1, 50])
def test_nothing_written_is_lost_when_the_process_is_killed(tmp_path: Path, per_subject: int) -> None:
    last, removed = 0, set()
    for round_ in range(12):
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(per_subject)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3 + round_ * 37 % 101)]
            os.kill(process.pid, signal.SIGKILL)
            lines += process.stdout.readlines()
        for line in lines:
            if line.endswith("\n") and int(line) > 0:
                last = int(line)
            elif line.endswith("\n"):
                removed.add(-int(line))
        said_by_store: list[str] = []
        store = FileStore(
            str(tmp_path),
            "S",
            block_size=32 * 1024,
            max_msgs_per_subject=per_subject,
            warn=said_by_store.append,
        )
        state = store.state()
        assert state.last_seq >= last
        assert state.lost_msgs == 0
        last = state.last_seq
        found = sequences(store)
        assert not removed & set(found)
        assert all(store.get(seq)[2:] == (b"s.%d" % (seq % 11), b"", b"%d " % seq * 20) for seq in found)
        if per_subject < 0:
            # The killed process may have written a removal that it had not reported.
            missing = set(range(1, last + 1)) - set(found) - removed
            assert len(missing) <= 1
            removed |= missing
        assert sum(n for n, _, _ in store.subjects_state().values()) == len(found)
        store.close()


def test_a_purge_that_was_interrupted_is_finished_or_undone(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path), "S")
    for _ in range(10):
        store.store_msg(b"s")
    store.close()
    # Everything is written, and the folders are not renamed.
    purged = tmp_path / "__new_msgs__"
    other = FileStore(str(tmp_path / "other"), "S") if (tmp_path / "other").mkdir() is None else None
    assert other is not None
    other.skip(1, 10)
    other.close()
    (tmp_path / "other" / "msgs").rename(purged)
    store = FileStore(str(tmp_path), "S")
    assert (store.state().msgs, store.state().last_seq) == (0, 10)
    store.close()
    # The new folder is empty: the block is not written yet.
    purged.mkdir()
    store = FileStore(str(tmp_path), "S")
    assert store.state().last_seq == 10
    assert not purged.exists()
    store.close()


def test_reading_and_writing_from_several_threads(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path), "S", block_size=32 * 1024, max_msgs=500)
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            message = store.get_next()
            while message and not stop.is_set():
                assert message[4] == b"%d " % message[0] * 20
                message = store.get_next((), message[0] + 1)

    def upkeep() -> None:
        while not stop.is_set():
            store.maintain(idle=0)
            store.sync_flushed()
            store.write_state()

    with ThreadPoolExecutor() as threads:
        running = [threads.submit(read), threads.submit(read), threads.submit(upkeep)]
        for seq in range(1, 8001):
            store.store_msg(b"s", b"%d " % seq * 20, flush=seq % 5 == 0)
        stop.set()
        for future in running:
            future.result()
    store.close()


def test_the_size_of_blocks_follows_the_limits() -> None:
    assert dyn_block_size() == 8 << 20
    assert dyn_block_size(limits_retention=False) == 4 << 20
    assert dyn_block_size(encrypted=True) == 2 << 20
    assert dyn_block_size(100_000) == 32_000
    assert dyn_block_size(10 << 20) == 4 << 20
    assert dyn_block_size(1 << 30) == 8 << 20


def tidied(store: FileStore | MemStore) -> None:
    store.sync_flushed()
    store.write_state()
    store.maintain()


def test_a_store_rests_until_something_is_to_be_done(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path), "S", block_size=1000)

    def comes_to_rest() -> bool:
        for _ in range(4):  # blocks stay in memory for a while after a read
            tidied(store)
        return store.rests()

    for i in range(100):
        store.store_msg(b"s.%d" % i, flush=False)
    assert not store.rests()
    assert comes_to_rest()
    store.store_msg(b"s")
    assert not store.rests()
    assert comes_to_rest()
    store.get(1)  # in a block that is not the last
    assert not store.rests()
    assert comes_to_rest()
    for seq in (3, 4, 5, 6, 7, 8, 9, 10):
        store.remove_msg(seq)
        assert not store.rests()
    assert comes_to_rest()
    assert store.purge_msgs() == 93
    assert not store.rests()
    assert comes_to_rest()
    assert not list(tmp_path.glob("__*"))
    store.close()
    assert not store.rests()
    store = FileStore(str(tmp_path), "S", block_size=1000)
    assert comes_to_rest()
    store.close()


@pytest.mark.parametrize("named", [True, False])
def test_the_last_message_of_a_subject_is_found_after_a_truncation(tmp_path: Path, named: bool) -> None:
    """`named`: index.db names a block that does not exist any more, as older servers wrote it."""
    store = FileStore(str(tmp_path), "S", block_size=200)
    for _ in range(6):
        store.store_msg(b"a", b"xyz", flush=False)
    store.truncate_to(2)
    store.close()
    index = (tmp_path / "msgs" / "index.db").read_bytes()
    subject = index.index(b"\x01a\x02\x01\x01")  # length, subject, messages, first block, last block
    if named:
        changed = index[: subject + 4] + b"\x04" + index[subject + 5 : -8]
        (tmp_path / "msgs" / "index.db").write_bytes(changed + checksum(b"S", changed))
    store = FileStore(str(tmp_path), "S", block_size=200)
    last = store.get_last(b"a")
    assert last is not None
    assert last[0] == 2
    assert store.subjects_state() == {b"a": (2, 1, 2)}
    store.close()
