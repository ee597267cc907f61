"""Scanning messages: subjects, headers, times, sizes; bounds of batches; bad input."""

from __future__ import annotations

import gc
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.archive_homes import KEY, make_home, messages, served

from gnats.archive import (
    SCHEMA,
    ArchiveError,
    Keys,
    StreamDir,
    StreamSource,
    find_streams,
    read_stream,
)
from gnats.archive.reading.blocks import BlockFiles
from gnats.archive.text import show, unshow
from gnats.jetstream.disk.encryption import Seal
from gnats.store.format.record import encode
from gnats.store.index.seqset import SequenceSet

MIB = 1 << 20


@given(st.binary() | st.lists(st.sampled_from([b"\\", b"x", b"f", b"\xff", b"\\xff", b"a"])).map(b"".join))
def test_any_bytes_can_be_shown_and_got_back(data: bytes) -> None:
    text = show(data)
    assert unshow(text) == data
    text.encode()


@given(st.text(alphabet=st.characters(exclude_characters="\\", codec="utf-8")))
def test_text_is_shown_as_it_is(text: str) -> None:
    assert show(text.encode()) == text


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", None),
        (b"NATS/1.0\r\n\r\n", []),
        (b"NATS/1.0\r\nA: 1\r\nb:  2 \r\nA: 3\r\n\r\n", [("A", ["1", "3"]), ("b", ["2 "])]),
        (b"NATS/1.0\r\na:1\r\nA:\r\n\r\n", [("a", ["1"]), ("A", [""])]),
        (b"NATS/1.0\nA: 1\nB: 2\n\n", [("A", ["1"]), ("B", ["2"])]),
        (b"NATS/1.0\r\nA: 1", [("A", ["1"])]),
        (b"NATS/1.0", []),
        (b"NATS/1.0 503 No Responders\r\n\r\n", [("Status", ["503"]), ("Description", ["No Responders"])]),
        (b"NATS/1.0 404\r\nA: 1\r\n\r\n", [("A", ["1"]), ("Status", ["404"])]),
        (b"NATS/1.0\r\nA: \xff\\xff\r\n\r\n", [("A", ["\\xff\\x5cxff"])]),
        (b"NATS/1.0\r\nnothing\r\n: x\r\nA: 1\r\n\r\n", [("", ["nothing", ": x"]), ("A", ["1"])]),
        (b"NATS/1.0\r\nA: 1\r\n\r\nrest: 2\r\n", [("A", ["1"]), ("", ["rest: 2\r\n"])]),
        (b"HTTP/1.1\r\nA: 1\r\n\r\n", [("", ["HTTP/1.1\r\nA: 1\r\n\r\n"])]),
    ],
)
def test_headers_become_a_map(tmp_path: Path, raw: bytes, expected: list[tuple[str, list[str]]]) -> None:
    home = make_home(tmp_path / "S")
    store = home.open()
    store.store_msg(b"s", b"", raw)
    store.store_msg(b"s", b"", b"NATS/1.0\r\nLast: 1\r\n\r\n")
    store.close()
    rows = read_stream(home.path).read_all().column("headers").to_pylist()
    assert rows == [expected, [("Last", ["1"])]]


def test_many_headers_of_few_keys_are_joined_in_order(tmp_path: Path) -> None:
    home = make_home(tmp_path / "S")
    store = home.open()
    expected: dict[str, list[str]] = {}
    lines = [b"NATS/1.0\r\n"]
    for i in range(20_000):
        key = f"k{i * i % 7001}"
        expected.setdefault(key, []).append(str(i))
        lines.append(f"{key}: {i}\r\n".encode())
    store.store_msg(b"s", b"p", b"".join([*lines, b"\r\n"]))
    store.close()
    (row,) = read_stream(home.path).read_all().column("headers").to_pylist()
    assert row == list(expected.items())


def test_times_are_microseconds_rounded_down_beside_nanoseconds(tmp_path: Path) -> None:
    home = make_home(tmp_path / "S")
    store = home.open()
    for ts in (-1, 1, 1_999, 1_700_000_000_123_456_789):
        store.store_msg(b"s", b"", ts=ts)
    store.close()
    table = read_stream(home.path).read_all()
    assert table.column("time_ns").to_pylist() == [-1, 1, 1_999, 1_700_000_000_123_456_789]
    assert table.column("time").cast(pa.int64()).to_pylist() == [-1, 0, 1, 1_700_000_000_123_456]


def test_the_latest_time_there_is_is_no_end(tmp_path: Path) -> None:
    latest = 2**63 - 1
    home = make_home(tmp_path / "S")
    store = home.open()
    for ts in (latest - 1, latest):
        store.store_msg(b"s", b"", ts=ts)
    store.close()

    def times(start_ns: int | None = None, end_ns: int | None = None) -> list[int]:
        found: list[int] = (
            read_stream(home.path, start_ns=start_ns, end_ns=end_ns).read_all()["time_ns"].to_pylist()
        )
        return found

    assert times() == [latest - 1, latest]
    assert times(end_ns=latest) == [latest - 1]
    assert times(start_ns=latest) == [latest]


def keys_that_collide(stages: int) -> list[bytes]:
    """Return header keys with the same FNV-1a hash, as a hostile publisher may choose them."""
    random = np.random.default_rng(1)
    state, keys = np.uint32(2166136261), [b""]
    for _ in range(stages):
        blocks = random.integers(97, 122, (3 << 16, 8), np.uint32)
        hashes = np.full(len(blocks), state, np.uint32)
        for letter in blocks.T:
            hashes = (hashes ^ letter) * np.uint32(16777619)
        order = np.argsort(hashes, kind="stable")
        first = np.flatnonzero(np.diff(hashes[order]) == 0)[0]
        pair = [blocks[order[at]].astype(np.uint8).tobytes() for at in (first, first + 1)]
        state = hashes[order[first]]
        keys = [key + block for key in keys for block in pair]
    assert len(set(keys)) == 1 << stages
    return keys


def test_nobody_can_choose_keys_that_collide(tmp_path: Path) -> None:
    keys = keys_that_collide(13)
    others = [
        each.tobytes() for each in np.random.default_rng(2).integers(97, 122, (len(keys), 104), np.uint8)
    ]
    took = []
    for name, each in (("hostile", keys), ("others", others)):
        home = make_home(tmp_path / name / "S")
        store = home.open()
        store.store_msg(b"s", b"", b"NATS/1.0\r\n" + b"".join(b"%s:\r\n" % key for key in each) + b"\r\n")
        store.close()
        before = time.thread_time()
        assert len(read_stream(home.path).read_all()["headers"][0]) == len(each)
        took.append(time.thread_time() - before)
    assert took[0] < 10 * took[1]


def test_columns_are_those_of_the_schema(tmp_path: Path) -> None:
    home = make_home(tmp_path / "jetstream" / "ACC" / "streams" / "S")
    store = home.open()
    store.store_msg(b"s.\xff", b"payload", b"NATS/1.0\r\nA: 1\r\n\r\n", ts=1_000)
    store.close()
    table = read_stream(tmp_path, stream="S").read_all()
    assert table.schema.equals(SCHEMA)
    row = table.to_pylist()[0]
    row["time"] = row["time"].timestamp()
    assert row == {
        "account": "ACC",
        "stream": "S",
        "sequence": 1,
        "subject": "s.\\xff",
        "time": 1e-6,
        "time_ns": 1000,
        "headers": [("A", ["1"])],
        "payload": b"payload",
        "size": 7,
        "block": 1,
    }


def test_batches_keep_to_their_bounds(tmp_path: Path) -> None:
    home = make_home(tmp_path / "S")
    store = home.open(block_size=10_000)
    sizes = [0, 10, 5_000, 100, 9_000, 1, 0, 3_000] * 10
    for size in sizes:
        store.store_msg(b"s", b"x" * size)
    store.close()
    batches = list(StreamSource(home.stream).scan(batch_rows=3, batch_bytes=6_000).reader)
    assert [size for batch in batches for size in batch.column("size").to_pylist()] == sizes
    for batch in batches:
        assert batch.num_rows <= 3
        assert batch.num_rows == 1 or sum(batch.column("size").to_pylist()) <= 6_000


def test_large_messages_that_just_fit_or_just_do_not(tmp_path: Path) -> None:
    home = make_home(tmp_path / "S")
    store = home.open()
    headers = (
        b"NATS/1.0\r\nA: ".ljust(985, b"x") + b"\r\n\r\n"
    )  # as long as the part that is read before a large payload
    for _ in range(4):
        store.store_msg(b"orders.a", b"y" * 20_000, headers)
    store.close()
    two = 2 * (48 + len(b"orders.a") + len(headers) + 20_000)
    for size in range(two - 24, two + 24):
        batches = list(read_stream(home.path, batch_bytes=size))
        assert [batch.num_rows for batch in batches] == ([1] * 4 if size < two else [2] * 2)
        assert all(set(batch["size"].to_pylist()) == {20_000} for batch in batches)


def test_a_batch_lives_on_without_its_reader(tmp_path: Path) -> None:
    home = make_home(tmp_path / "S")
    store = home.open(block_size=4 * MIB)
    payloads = [bytes([i]) * MIB for i in range(8)]
    for payload in payloads:
        store.store_msg(b"s", payload)
    store.close()
    reader = read_stream(home.path, batch_bytes=2 * MIB)
    kept = [reader.read_next_batch(), reader.read_next_batch()]
    rest = sum(batch.num_rows for batch in reader)
    del reader
    gc.collect()
    found = [payload for batch in kept for payload in batch.column("payload").to_pylist()]
    assert found == payloads[: len(found)]
    assert rest + len(found) == len(payloads)


def test_the_largest_message_there_can_be_is_read(tmp_path: Path) -> None:
    home = make_home(tmp_path / "S")
    most = 32 * MIB - 22 - 1 - 8
    store = home.open(block_size=8 * MIB)
    store.store_msg(b"s", b"first")
    store.store_msg(b"s", b"x" * most)
    store.store_msg(b"s", b"last")
    store.close()
    batches = list(StreamSource(home.stream).scan(batch_bytes=MIB).reader)
    assert [batch.column("size").to_pylist() for batch in batches] == [[5], [most], [4]]
    assert batches[1].column("payload")[0].as_buffer().to_pybytes() == b"x" * most


@pytest.mark.skipif("GNATS_SANITIZED" in os.environ, reason="a sanitizer keeps freed memory")
def test_memory_does_not_grow_with_the_stream(tmp_path: Path) -> None:
    home = make_home(tmp_path / "S")
    store = home.open(block_size=4 * MIB)
    for _ in range(256):
        store.store_msg(b"s", b"x" * MIB, flush=False)
    store.close()
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = peak()
    rows = sum(batch.num_rows for batch in StreamSource(home.stream).scan(batch_bytes=4 * MIB).reader)
    assert rows == 256
    assert peak() - before < 32 * 1024


def peak() -> int:
    """Return the peak resident memory of this process, in KiB."""
    (line,) = [x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM")]
    return int(line.split()[1])


def test_the_end_of_the_last_block_may_be_a_record_that_is_being_written(tmp_path: Path) -> None:
    home = make_home(tmp_path / "S")
    store = home.open()
    store.store_msg(b"s", b"one")
    store.flush_pending()
    expected = served(store)
    with home.blocks[0].open("ab") as block:
        block.write(encode(b"S-1", 2, 1, b"s", b"", b"two")[:-1])
    found, scan = home.scan()
    assert found == expected
    assert not scan.damage
    assert scan.tail
    assert scan.tail.end - scan.tail.start == 22 + 1 + 3 + 8 - 1
    store.close()


def test_messages_behind_the_snapshot_are_left_for_the_next_one(tmp_path: Path) -> None:
    home = make_home(tmp_path / "S")
    store = home.open()
    store.store_msg(b"s", b"one")
    store.flush_pending()
    source = StreamSource(home.stream)
    snapshot = source.snapshot()
    store.store_msg(b"s", b"two")
    store.flush_pending()
    assert [message[0] for message in messages(snapshot.scan())] == [1]
    assert [message[0] for message in messages(source.scan())] == [1, 2]
    store.close()


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"first_seq": -(2**64)}, [1, 2, 3]),
        ({"first_seq": 2**63}, []),
        ({"first_seq": 2**64}, []),
        ({"last_seq": 2**64}, [1, 2, 3]),
        ({"last_seq": 0}, []),
        ({"last_seq": -(2**64)}, []),
        ({"start_ns": -(2**63) - 1}, [1, 2, 3]),
        ({"start_ns": 2**63}, []),
        ({"end_ns": 2**63}, [1, 2, 3]),
        ({"end_ns": 2**70, "start_ns": -(2**70), "last_seq": 2}, [1, 2]),
        ({"end_ns": -(2**63)}, []),
        ({"end_ns": -(2**70)}, []),
    ],
)
def test_what_no_message_can_have_is_no_bound(
    tmp_path: Path, selection: dict[str, int], expected: list[int]
) -> None:
    home = make_home(tmp_path / "S")
    store = home.open()
    for ts in (-1, 1, 1_700_000_000_000_000_000):
        store.store_msg(b"s", b"", ts=ts)
    store.flush_pending()  # in one block, so that none is skipped by its sequences
    assert read_stream(home.path, **selection).read_all().column("sequence").to_pylist() == expected
    store.close()


def test_threads_scan_side_by_side(tmp_path: Path) -> None:
    """Threads scan while a store writes: they reuse returned buffers, but none of a live batch."""
    home = make_home(tmp_path / "S")
    store = home.open(block_size=1 * MIB)
    for seq in range(1, 4001):
        store.store_msg(b"s.%d" % (seq % 9), seq.to_bytes(8, "big") * 200, ts=seq)
    store.flush_pending()
    snapshot = StreamSource(home.stream).snapshot()

    def scan(_: int) -> list[pa.RecordBatch]:
        return list(snapshot.scan(batch_bytes=2 * MIB).reader)

    with ThreadPoolExecutor(4) as pool:
        scans = pool.map(scan, range(12))
        for seq in range(4001, 6001):
            store.store_msg(b"s", b"x" * 100, ts=seq)
        store.flush_pending()
        for batches in scans:
            table = pa.Table.from_batches(batches, SCHEMA)
            assert table.column("sequence").to_pylist() == list(range(1, 4001))
            for seq, payload in enumerate(table.column("payload").to_pylist(), 1):
                assert payload == seq.to_bytes(8, "big") * 200
    store.close()


def test_a_part_carries_what_is_deleted_in_it_only(tmp_path: Path) -> None:
    home = make_home(tmp_path / "S")
    store = home.open(block_size=4096)
    for _ in range(4000):
        store.store_msg(b"s", b"m" * 20)
    for seq in range(2, 4000, 2):
        store.remove_msg(seq)
    store.flush_pending()
    snapshot = StreamSource(home.stream).snapshot()
    parts = [snapshot.part([block]) for block in snapshot.blocks]
    assert len(parts) > 10
    assert sum(len(SequenceSet.decode(part.deleted)[0]) for part in parts) == 1999
    assert [message for part in parts for message in messages(part.scan())] == list(messages(snapshot.scan()))
    store.close()


def test_nothing_of_a_directory_changes(tmp_path: Path) -> None:
    home = make_home(tmp_path / "S")
    store = home.open()
    for seq in range(1, 100):
        store.store_msg(b"s", b"%d" % seq)
    store.close()
    (home.path / "meta.inf.new").write_bytes(b"half")
    (home.path / "__new_msgs__").mkdir()
    (home.path / "msgs" / "7.blk.tmp").write_bytes(b"half")

    def look() -> list[tuple[str, int, bytes]]:
        paths = sorted(path for path in home.path.rglob("*") if path.is_file())
        return [(str(path), path.stat().st_mtime_ns, path.read_bytes()) for path in paths]

    before = look()
    assert len(home.scan()[0]) == 99
    assert look() == before


def test_a_purge_that_was_interrupted_has_happened(tmp_path: Path) -> None:
    home = make_home(tmp_path / "S")
    store = home.open()
    store.store_msg(b"s", b"old")
    store.close()
    new = home.path / "__new_msgs__"
    new.mkdir()
    (new / "2.blk").write_bytes(encode(b"S-2", 2, 1, b"s", b"", b"new"))
    assert [message[4] for message in home.scan()[0]] == [b"new"]


@pytest.mark.parametrize("cipher", ["", "aes"])
def test_a_block_that_is_removed_while_it_is_opened_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cipher: str
) -> None:
    """An encrypted block's key is removed with it; without it the records cannot be read."""
    home = make_home(tmp_path / "S", cipher)
    store = home.open()
    for _ in range(200):
        store.store_msg(b"s", b"x" * 40)
    store.close()
    snapshot = StreamSource(home.stream, home.keys).snapshot()
    find_seal = BlockFiles._block_seal

    def removed(self: BlockFiles, path: Path, index: int) -> Seal | None:
        if index == 2:
            path.unlink()
            path.with_suffix(".key").unlink(missing_ok=True)
        return find_seal(self, path, index)

    monkeypatch.setattr(BlockFiles, "_block_seal", removed)
    scan = snapshot.scan()
    sequences = [each[0] for each in messages(scan)]
    assert scan.damage == []
    if cipher:
        second = snapshot.blocks[1]
        assert scan.vanished == [2]
        assert sequences == [seq for seq in range(1, 201) if not second.first_seq <= seq <= second.last_seq]
    else:
        assert sequences == list(range(1, 201))


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    def fails(match: str, what: object) -> None:
        with pytest.raises(ArchiveError, match=match) as caught:
            what()  # type: ignore[operator]
        assert "\n" not in str(caught.value)

    home = make_home(tmp_path / "js" / "ACC" / "streams" / "S", "aes")
    store = home.open()
    store.store_msg(b"s", b"secret")
    store.close()
    (tmp_path / "empty").mkdir()
    fails("does not exist", lambda: find_streams(tmp_path / "none"))
    fails("is no JetStream store", lambda: find_streams(tmp_path / "empty"))
    fails("stream T is not in .*; there: S", lambda: read_stream(tmp_path / "js", stream="T"))
    fails("is encrypted; its key is needed", lambda: read_stream(home.path))
    fails("is not opened by this key", lambda: read_stream(home.path, keys=Keys("wrong", None, "aes")))
    fails("is no cipher", lambda: read_stream(home.path, keys=Keys(KEY, None, "rot13")))
    fails("is no subject", lambda: read_stream(home.path, keys=home.keys, subjects=["a..b"]))
    assert read_stream(home.path, keys=Keys("new", KEY, "aes")).read_all().num_rows == 1
    assert read_stream(home.path, keys=Keys(KEY, None, "chachapoly")).read_all().num_rows == 1
    shutil.rmtree(home.path / "msgs")
    fails("is no stream: msgs is not in it", lambda: read_stream(home.path, keys=home.keys))


def test_streams_are_found_from_any_level(tmp_path: Path) -> None:
    for account, name in (("A", "ONE"), ("A", "TWO"), ("B", "ONE")):
        make_home(tmp_path / "jetstream" / account / "streams" / name)
    found = [(each.account, each.name) for each in find_streams(tmp_path)]
    assert found == [("A", "ONE"), ("A", "TWO"), ("B", "ONE")]
    assert find_streams(tmp_path / "jetstream") == find_streams(tmp_path)
    assert [each.name for each in find_streams(tmp_path / "jetstream" / "A")] == ["ONE", "TWO"]
    path = tmp_path / "jetstream" / "B" / "streams" / "ONE"
    assert find_streams(path) == [StreamDir("B", "ONE", str(path))]
    with pytest.raises(ArchiveError, match="several streams: A > ONE, B > ONE"):
        read_stream(tmp_path, stream="ONE")


def test_what_a_server_before_2_10_noted_beside_a_block_is_removed(tmp_path: Path) -> None:
    home = make_home(tmp_path / "S")
    store = home.open()
    for seq in range(1, 11):
        store.store_msg(b"s", b"%d" % seq)
    store.close()
    (home.path / "msgs" / "index.db").unlink()
    numbers = bytes([5, 0, 4, 0, 10, 0, 2])  # messages, bytes, first, time, last, time, number of deleted
    checksum = home.blocks[0].read_bytes()[-8:]
    index = home.path / "msgs" / "1.idx"
    index.write_bytes(b"\x16\x01" + numbers + checksum + bytes([2, 4]))
    assert [message[0] for message in home.scan()[0]] == [4, 5, 7, 9, 10]
    index.write_bytes(b"\x16\x01" + numbers + bytes(8) + bytes([2, 4]))
    assert len(home.scan()[0]) == 10
