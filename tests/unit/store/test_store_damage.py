"""Stores with damaged files, full disks, and records that are cut off."""

from __future__ import annotations

import errno
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gnats.store.format import record
from gnats.store.format.region import faults_seen
from gnats.store.store import FileStore, StoreFailure

PAGE = resource.getpagesize()
RECORD = 22 + 3 + 100 + 8
"""Bytes of one of filled()'s."""
LENGTH = (0, 1, 2, 3)
SUBJECT_LENGTH = (20, 21)


def filled(folder: Path, n: int, *, block_size: int = 8192, payload: int = 100) -> dict[int, bytes]:
    """Make a closed store of n messages; return payloads by sequence."""
    store = FileStore(str(folder), "S", block_size=block_size)
    payloads = {}
    for seq in range(1, n + 1):
        payloads[seq] = (b"%d " % seq).ljust(payload, b"x")
        store.store_msg(b"s.%d" % (seq % 3), payloads[seq], flush=False)
    store.close()
    return payloads


def blocks(folder: Path) -> list[Path]:
    return sorted((folder / "msgs").glob("*.blk"), key=lambda path: int(path.stem))


def readable(store: FileStore) -> dict[int, bytes]:
    found = {}
    state = store.state()
    for seq in range(state.first_seq, state.last_seq + 1):
        try:
            found[seq] = store.get(seq)[4]
        except StoreFailure:
            continue
    return found


@pytest.mark.parametrize("index", [True, False])
def test_a_record_cut_off_at_any_byte_costs_itself_only(tmp_path: Path, index: bool) -> None:
    payloads = filled(tmp_path / "whole", 5)
    path = blocks(tmp_path / "whole")[-1]
    data = path.read_bytes()
    size = len(data) // 5
    for cut in range(1, size):
        home = tmp_path / str(cut)
        shutil.copytree(tmp_path / "whole", home)
        if not index:
            (home / "msgs" / "index.db").unlink()
        (home / "msgs" / path.name).write_bytes(data[:-cut])
        said: list[str] = []
        store = FileStore(str(home), "S", block_size=8192, warn=said.append)
        del_last = {seq: payload for seq, payload in payloads.items() if seq < 5}
        assert readable(store) == del_last
        assert store.state().lost_bytes == size - cut
        assert any("incomplete record" in line for line in said)
        # With the index the store knows the lost sequence, and does not assign it again.
        expected = 6 if index else 5
        assert store.store_msg(b"s.new", b"new") == expected
        store.close()
        store = FileStore(str(home), "S", block_size=8192)
        assert readable(store) == del_last | {expected: b"new"}
        store.close()


def forged(last: int) -> bytes:
    """Encode records for a hostile payload: tombstones for other clients' messages, and a message."""
    gone = [record.encode(b"S-1", seq, 1, b"", b"", b"", "tombstone") for seq in range(1, last)]
    return b"".join([*gone, record.encode(b"S-1", last + 1, 1, b"forged", b"", b"x")])


@pytest.mark.parametrize("what", ["cut off", "in its payload", "in its sequence", "in its length"])
@pytest.mark.parametrize("sealed", [False, True], ids=["clear", "encrypted"])
@pytest.mark.parametrize("more", [0, 3])
def test_what_a_payload_looks_like_is_no_record(tmp_path: Path, what: str, sealed: bool, more: int) -> None:
    options: dict[str, Any] = {"cipher": "aes", "key": b"key"} if sealed else {}
    store = FileStore(str(tmp_path), "S", **options)
    for seq in range(1, 6):
        store.store_msg(b"victim", b"%d" % seq)
    [block] = blocks(tmp_path)
    start = block.stat().st_size
    store.store_msg(b"attacker", forged(6) + b"x" * 5000)
    end = block.stat().st_size
    for seq in range(7, 7 + more):
        store.store_msg(b"victim", b"%d" % seq)
    content = bytearray(block.read_bytes())
    store.close()
    (tmp_path / "msgs" / "index.db").unlink()
    if what == "cut off":
        more = 0
        del content[end - 3000 :]
    else:
        places = {"in its payload": end - 100, "in its sequence": start + 5, "in its length": start + 1}
        content[places[what]] ^= 64
    block.write_bytes(content)
    store = FileStore(str(tmp_path), "S", **options)
    assert readable(store) == {seq: b"%d" % seq for seq in (*range(1, 6), *range(7, 7 + more))}
    assert store.subjects_totals() == {b"victim": 5 + more}
    store.close()


@settings(max_examples=150)
@given(data=st.data())
def test_flipped_bits_cost_what_they_hit(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("flip")
    payloads = filled(folder, 200)
    indexed = data.draw(st.booleans(), label="with the index")
    if not indexed:
        (folder / "msgs" / "index.db").unlink()
    paths = blocks(folder)
    path = paths[data.draw(st.integers(0, len(paths) - 1), label="block")]
    content = bytearray(path.read_bytes())
    hit = set()
    lengths = set()
    for _ in range(data.draw(st.integers(1, 3), label="flips")):
        at = data.draw(st.integers(0, len(content) - 1), label="at")
        # No checksum covers where a record's subject ends: a flip there goes unseen.
        assume(at % RECORD not in SUBJECT_LENGTH)
        content[at] ^= 1 << data.draw(st.integers(0, 7), label="bit")
        hit.add(at)
        if at % RECORD in LENGTH:
            lengths.add(at // RECORD)
    # A record with flips in length and content looks cut off. If the next record is hit too, its end is lost.
    content_hit = {at // RECORD for at in hit if at % RECORD not in LENGTH}
    assume(lengths.isdisjoint(content_hit | {at // RECORD - 1 for at in hit}))
    path.write_bytes(content)
    # Damaged records at the very end may look like writes that a crash interrupted. They are then
    # cut off, and only the index has their sequences.
    cut = 0
    while path == paths[-1] and len(content) // RECORD - 1 - cut in {at // RECORD for at in hit}:
        cut += 1
    before = sum(path.stat().st_size for path in paths)
    store = FileStore(str(folder), "S", block_size=8192, warn=lambda text: None)
    found = readable(store)
    # No served message differs, and only hit messages are lost.
    assert all(payloads[seq] == payload for seq, payload in found.items())
    assert len(payloads) - len(found) <= len(hit)
    state = store.state()
    assert state.msgs == len(found)
    for subject, (msgs, first, last) in store.subjects_state().items() if state.lost_msgs == 0 else ():
        own = [seq for seq in found if b"s.%d" % (seq % 3) == subject]
        assert (msgs, first, last) == (len(own), own[0], own[-1])
    store.maintain()
    own_subjects = {b"s.%d" % (seq % 3) for seq in found}
    assert set(store.subjects_state()) == own_subjects
    assert store.store_msg(b"s.new", b"new") > len(payloads) - (0 if indexed else cut)
    store.close()
    assert sum(path.stat().st_size for path in (folder / "msgs").glob("*.blk*")) >= before - cut * RECORD
    shutil.rmtree(folder)


@pytest.mark.parametrize("hit", [1, 2, 3])
def test_damaged_records_at_the_end_are_cut_off_without_the_index(tmp_path: Path, hit: int) -> None:
    """They look like writes that a crash interrupted. Only the index shows that there were such messages."""
    payloads = filled(tmp_path, 20)
    [path] = blocks(tmp_path)
    content = bytearray(path.read_bytes())
    for back in range(hit):
        content[len(content) - 50 - back * RECORD] ^= 1
    path.write_bytes(content)
    shutil.copytree(tmp_path / "msgs", tmp_path / "other" / "msgs")
    (tmp_path / "other" / "msgs" / "index.db").unlink()
    for folder, last, said in (
        (tmp_path, 20, f"{hit} messages are lost to damage"),
        (
            tmp_path / "other",
            20 - hit,
            f"{hit * RECORD} bytes of an incomplete record at the end are cut off",
        ),
    ):
        log: list[str] = []
        store = FileStore(str(folder), "S", block_size=8192, warn=log.append)
        assert readable(store) == {seq: payloads[seq] for seq in range(1, 21 - hit)}
        assert store.state().lost_bytes == hit * RECORD
        assert [said in line for line in log] == [True]
        assert store.store_msg(b"s.new", b"new") == last + 1
        store.close()


def test_a_file_cut_short_under_a_store_costs_what_was_cut(tmp_path: Path) -> None:
    payloads = filled(tmp_path, 400, block_size=64 * 1024)
    store = FileStore(str(tmp_path), "S", block_size=64 * 1024)
    assert len(readable(store)) == 400
    path = blocks(tmp_path)[0]
    faults = faults_seen()
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.truncate(PAGE)
    found = {}
    for seq in payloads:
        try:
            found[seq] = store.get(seq)[4]
        except StoreFailure as failure:
            assert "cannot be read" in str(failure)
    assert faults_seen() > faults
    assert all(payloads[seq] == payload for seq, payload in found.items())
    assert 10 <= len(found) < 60
    state = store.state()
    assert (state.damaged > 0, state.msgs, state.lost_msgs) == (True, len(found), 400 - len(found))
    assert store.lost_ranges() == [(max(found) + 1, 400)]
    assert sum(n for _, _, _, n in store.newly_lost()) == state.lost_msgs
    store.close()
    # The truncation was temporary: the file is whole again.
    path.write_bytes(content)
    store = FileStore(str(tmp_path), "S", block_size=64 * 1024)
    assert readable(store) == payloads
    assert store.state().lost_msgs == 0
    store.close()


def test_a_block_that_vanished_is_reported(tmp_path: Path) -> None:
    payloads = filled(tmp_path, 200)
    store = FileStore(str(tmp_path), "S", block_size=8192)
    paths = blocks(tmp_path)
    paths[1].unlink()
    found = readable(store)
    state = store.state()
    assert state.msgs == len(found) == 200 - state.lost_msgs
    assert 0 < state.lost_msgs < 100
    gone = set(payloads) - set(found)
    assert store.lost_ranges() == [(min(gone), max(gone))]
    assert store.newly_lost() == [(2, min(gone), max(gone), len(gone))]
    assert store.newly_lost() == []
    store.maintain()
    assert sum(n for n, _, _ in store.subjects_state().values()) == len(found)
    store.close()


@pytest.mark.parametrize("index", [True, False])
def test_blocks_that_are_gone_at_the_start_are_reported(tmp_path: Path, index: bool) -> None:
    payloads = filled(tmp_path, 400)
    store = FileStore(str(tmp_path), "S", block_size=8192)
    store.remove_msg(70)
    store.close()
    del payloads[70]
    paths = blocks(tmp_path)
    size = paths[1].stat().st_size
    paths[1].unlink()
    if not index:
        (tmp_path / "msgs" / "index.db").unlink()
    said: list[str] = []
    store = FileStore(str(tmp_path), "S", block_size=8192, warn=said.append)
    found = readable(store)
    gone = set(payloads) - set(found)
    state = store.state()
    if index:
        assert 70 in range(min(gone), max(gone))
        assert store.lost_ranges() == [(min(gone), 69), (71, max(gone))]
        assert (state.lost_msgs, state.lost_bytes) == (len(gone), size - size // (len(gone) + 1))
        assert any(f"block 2: {len(gone)} messages are lost" in line for line in said)
    else:
        assert state.lost_msgs == 0  # without the index nothing shows the loss
    store.close()


def test_what_limits_have_removed_is_not_lost(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path), "S", block_size=8192, max_msgs_per_subject=2)
    for seq in range(1, 400):
        store.store_msg(b"s.%d" % (seq % 3), b"x" * 100)
        if seq == 100:
            store.write_state()
            index = (tmp_path / "msgs" / "index.db").read_bytes()
    store.close()
    (tmp_path / "msgs" / "index.db").write_bytes(index)  # as after a kill
    store = FileStore(str(tmp_path), "S", block_size=8192, max_msgs_per_subject=2)
    state = store.state()
    assert (state.msgs, state.lost_msgs, state.lost_bytes) == (6, 0, 0)
    store.close()


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_failed_write_freezes_the_store(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path), "S", block_size=1 << 20)
    stored = {}
    with file_size_limit(10_000):
        with pytest.raises(StoreFailure) as failure:
            for seq in range(1, 1000):
                assert store.store_msg(b"s", b"%d" % seq + b"x" * 100) == seq
                stored[seq] = b"%d" % seq + b"x" * 100
        assert errno.errorcode[errno.EFBIG] and "File too large" in str(failure.value)
        assert "write 1.blk" in store.failure()
        # Exactly the acknowledged messages are there.
        assert readable(store) == stored
        assert store.state().last_seq == len(stored)
        with pytest.raises(StoreFailure):
            store.store_msg(b"s", b"more")
        with pytest.raises(StoreFailure):
            store.remove_msg(1)
        with pytest.raises(StoreFailure):
            store.purge_msgs()
    with pytest.raises(StoreFailure):
        store.close()
    store = FileStore(str(tmp_path), "S", block_size=1 << 20)
    assert readable(store) == stored
    assert store.store_msg(b"s", b"again") == len(stored) + 1
    store.close()


def test_a_batch_that_cannot_be_written_is_not_there(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path), "S", block_size=1 << 20, max_msgs_per_subject=2)
    for i in range(20):
        store.store_msg(b"s.%d" % (i % 4), b"kept")
    before = store.state()
    with file_size_limit(1000):
        for i in range(20):
            store.store_msg(b"s.%d" % (i % 3), b"y" * 100, flush=False)
        with pytest.raises(StoreFailure):
            store.flush_pending()
    assert store.state().last_seq == before.last_seq
    assert all(payload == b"kept" for payload in readable(store).values())
    assert sum(n for n, _, _ in store.subjects_state().values()) == store.state().msgs == len(readable(store))


def test_a_directory_that_cannot_be_opened_is_left_alone(tmp_path: Path) -> None:
    filled(tmp_path, 20)
    path = blocks(tmp_path)[0]
    content = path.read_bytes()
    index = (tmp_path / "msgs" / "index.db").read_bytes()
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError):
        FileStore(str(tmp_path), "S", block_size=8192)
    path.rmdir()
    path.write_bytes(content)
    assert (tmp_path / "msgs" / "index.db").read_bytes() == index
    store = FileStore(str(tmp_path), "S", block_size=8192)
    assert len(readable(store)) == 20
    store.close()


def test_a_damaged_index_is_not_needed(tmp_path: Path) -> None:
    payloads = filled(tmp_path, 100)
    path = tmp_path / "msgs" / "index.db"
    content = path.read_bytes()
    for at in range(0, len(content), 3):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :])
        said: list[str] = []
        store = FileStore(str(tmp_path), "S", block_size=8192, warn=said.append)
        assert readable(store) == payloads
        assert said
        store.close()


@pytest.mark.parametrize("index", [True, False])
def test_a_compressed_block_that_is_damaged_costs_itself_only(tmp_path: Path, index: bool) -> None:
    store = FileStore(str(tmp_path), "S", block_size=8192, compression="s2")
    payloads = {store.store_msg(b"s", b"%d" % i * 30): b"%d" % i * 30 for i in range(400)}
    assert store.maintain(rewrites=100) > 2
    store.close()
    path = blocks(tmp_path)[1]
    content = bytearray(path.read_bytes())
    assert content.startswith(b"cmp")
    content[len(content) // 2] ^= 16
    path.write_bytes(content)
    if not index:
        (tmp_path / "msgs" / "index.db").unlink()
    store = FileStore(str(tmp_path), "S", block_size=8192, compression="s2")
    found = readable(store)
    assert 100 < len(found) < 400 and found.items() <= payloads.items()
    assert store.state().msgs == len(found)
    # Limits hold again.
    store.update_config(max_msgs=10)
    assert store.state().msgs == len(readable(store)) == 10
    store.close()
    assert path.with_suffix(".blk.bad").read_bytes() == content


@pytest.mark.parametrize(
    ("size", "sealed", "index"),
    [(0x706D63, False, True), (0x706D63, False, False), (0x706D63, True, True), (0x1706D63, False, False)],
)
def test_a_record_whose_length_reads_as_the_magic_of_compression(
    tmp_path: Path, size: int, sealed: bool, index: bool
) -> None:
    """The magic is "cmp" and the kind of compression, in the first four bytes of a block."""
    options: dict[str, Any] = {"cipher": "aes", "key": b"key"} if sealed else {}
    payload = bytes(size - len(record.encode(b"S-1", 1, 1, b"s", b"", b"")))
    store = FileStore(str(tmp_path), "S", block_size=2 * size, **options)
    store.store_msg(b"s", payload)
    store.store_msg(b"s", b"next")
    store.close()
    if not index:
        (tmp_path / "msgs" / "index.db").unlink()
    store = FileStore(str(tmp_path), "S", block_size=2 * size, **options)
    assert readable(store) == {1: payload, 2: b"next"}
    store.close()
