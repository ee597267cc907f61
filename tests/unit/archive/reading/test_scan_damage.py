"""Damaged blocks: a scan yields every readable message and no wrong one, and reports every loss."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.archive_homes import CREATED, Home, Message, make_home, messages, served

from gnats.archive import ArchiveError, DamageWarning, Scan, StreamSource, read_stream
from gnats.jetstream.disk.metafiles import write_stream_meta
from gnats.jetstream.settings.config import StreamConfig
from gnats.store.format.record import encode

SUBJECT_LENGTH = (20, 21)
"""Bytes of a record that no checksum covers: one byte more or less of a subject goes unseen."""


def filled(path: Path, n: int, *, cipher: str = "", compression: str = "none") -> tuple[Home, list[Message]]:
    """Make a closed stream of n messages without an index; return it and the messages."""
    home = make_home(path, cipher)
    store = home.open(block_size=1024, compression=compression)
    for seq in range(1, n + 1):
        store.store_msg(b"s.%d" % (seq % 3), b"%d" % seq + b"x" * (seq % 40), ts=seq * 1000)
    found = served(store)
    store.close()
    (home.path / "msgs" / "index.db").unlink()
    return home, found


def missing(scan: Scan) -> set[int]:
    """Return the sequences that a scan reports as possibly missing."""
    said = [*scan.damage, *([scan.tail] if scan.tail else [])]
    return {
        seq
        for each in said
        if each.first_seq is not None and each.last_seq is not None
        for seq in range(each.first_seq, each.last_seq + 1)
    }


@pytest.mark.parametrize("index", [0, 1, -1], ids=["first", "middle", "last"])
def test_every_cut_of_a_block_costs_what_is_cut_and_is_said(tmp_path: Path, index: int) -> None:
    home, stored = filled(tmp_path / "S", 40)
    path = home.blocks[index]
    data = path.read_bytes()
    whole, _ = home.scan()
    assert whole == stored
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        snapshot = StreamSource(home.stream).snapshot()
        scan = snapshot.scan()
        found = list(messages(scan))
        lost = {message[0] for message in stored} - {message[0] for message in found}
        assert [message for message in stored if message[0] not in lost] == found
        if _at_a_boundary(data, cut):
            # A block may end behind any record: this is no damage.
            assert not scan.damage
            assert scan.tail is None
            continue
        assert {seq for seq in lost if seq <= snapshot.last_seq} <= missing(scan)
        (damage,) = [scan.tail] if index == -1 else scan.damage
        assert (damage.end, damage.block) == (cut, int(path.stem))


def _at_a_boundary(data: bytes, cut: int) -> bool:
    at = 0
    while at < cut:
        at += int.from_bytes(data[at : at + 4], "little") & 0x7FFFFFFF
    return at == cut


@settings(max_examples=400)
@given(data=st.data())
def test_flipped_bits_never_make_a_message_and_are_never_silent(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("flip")
    home, stored = filled(folder / "S", 60)
    path = data.draw(st.sampled_from(home.blocks), label="block")
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4), label="flips")):
        content[data.draw(st.integers(0, len(content) - 1), label="at")] ^= 1 << data.draw(st.integers(0, 7))
    changed = bytes(content) != path.read_bytes()
    path.write_bytes(content)
    snapshot = StreamSource(home.stream).snapshot()
    scan = snapshot.scan()
    found = list(messages(scan))
    shutil.rmtree(folder)
    by_seq = {message[0]: message for message in stored}
    for seq, ts, subject, headers, payload in found:
        # No checksum covers where the subject ends; one covers subject, headers and payload together.
        assert (ts, subject + headers + payload) == (by_seq[seq][1], by_seq[seq][2] + by_seq[seq][4])
    lost = set(by_seq) - {message[0] for message in found}
    if lost:
        assert scan.damage or scan.tail
        # Behind the last record that is left nothing shows that there were others.
        assert {seq for seq in lost if seq <= snapshot.last_seq} <= missing(scan)
    assert changed or not lost


@pytest.mark.parametrize(("cipher", "compression"), [("", "s2"), ("chacha", "none"), ("aes", "s2")])
def test_damage_in_packed_blocks_costs_no_other_block(tmp_path: Path, cipher: str, compression: str) -> None:
    home, stored = filled(tmp_path / "S", 120, cipher=cipher, compression=compression)
    path = home.blocks[1]
    whole = path.read_bytes()
    others = [message for message in stored if message[0] not in block_seqs(home, int(path.stem))]
    for at in range(0, len(whole), 7):
        content = bytearray(whole)
        content[at] ^= 0x10
        path.write_bytes(content)
        found, scan = home.scan()
        assert scan.damage
        assert set(others) <= set(found) <= set(stored)
        assert {message[0] for message in set(stored) - set(found)} <= missing(scan)
    path.write_bytes(whole)
    assert home.scan()[0] == stored


def block_seqs(home: Home, index: int) -> set[int]:
    scan = StreamSource(home.stream, home.keys).scan(blocks=[index])
    return {message[0] for message in messages(scan)}


def test_what_is_not_a_record_is_passed_over_to_the_next_one(tmp_path: Path) -> None:
    home, stored = filled(tmp_path / "S", 40)
    path = home.blocks[0]
    data = path.read_bytes()
    size = int.from_bytes(data[:4], "little")
    path.write_bytes(data[:size] + b"\xff" * 50 + data[size:])
    found, scan = home.scan()
    assert found == stored
    (damage,) = scan.damage
    assert (damage.block, damage.start, damage.end) == (1, size, size + 50)
    assert damage.first_seq is None


def test_a_deleted_message_is_not_missing_when_its_bytes_are_damaged(tmp_path: Path) -> None:
    home = make_home(tmp_path / "S")
    store = home.open()
    for seq in range(1, 6):
        store.store_msg(b"s", b"payload %d" % seq)
    store.remove_msg(3)
    expected = served(store)
    store.flush_pending()
    data = home.blocks[0].read_bytes()
    at = data.index(b"payload 3")
    home.blocks[0].write_bytes(data[:at] + b"PAYLOAD" + data[at + 7 :])
    found, scan = home.scan()
    assert found == expected
    assert [each.first_seq for each in scan.damage] == [None]
    store.close()


def test_a_reader_raises_or_warns_at_its_end(tmp_path: Path) -> None:
    home, stored = filled(tmp_path / "S", 40)
    data = bytearray(home.blocks[0].read_bytes())
    data[30] ^= 1
    home.blocks[0].write_bytes(data)
    reader = read_stream(home.path)
    rows = 0
    with pytest.raises(ArchiveError, match=r"is damaged: block 1, bytes 0 to \d+: .*\(sequences 1 to 1\)"):
        for batch in reader:
            rows += batch.num_rows
    assert rows == len(stored) - 1
    with pytest.warns(DamageWarning, match="checksum"):
        table = read_stream(home.path, damage="warn").read_all()
    assert table.column("sequence").to_pylist() == [message[0] for message in stored[1:]]


def test_a_block_that_cannot_be_opened_is_damage(tmp_path: Path) -> None:
    home, stored = filled(tmp_path / "S", 60)
    gone = block_seqs(home, 2)
    home.blocks[1].unlink()
    (home.path / "msgs" / "2.blk").mkdir()
    found, scan = home.scan()
    assert found == [message for message in stored if message[0] not in gone]
    assert missing(scan) == gone


def test_a_block_that_vanishes_after_the_snapshot_is_named(tmp_path: Path) -> None:
    home, stored = filled(tmp_path / "S", 60)
    snapshot = StreamSource(home.stream).snapshot()
    gone = block_seqs(home, 2)
    (home.path / "msgs" / "2.blk").unlink()
    scan = snapshot.scan()
    assert list(messages(scan)) == [message for message in stored if message[0] not in gone]
    assert scan.vanished == [2]
    assert not scan.damage


def test_a_stream_that_is_not_there_is_no_stream_without_messages(tmp_path: Path) -> None:
    """The store's directory may be missing because this machine does not mount it."""
    home, _ = filled(tmp_path / "S", 60)
    snapshot = StreamSource(home.stream).snapshot()
    home.path.rename(tmp_path / "elsewhere")
    with pytest.raises(ArchiveError, match="S is not there: deleted, or not seen by this machine"):
        snapshot.scan().reader.read_all()


def test_a_stream_that_is_made_anew_is_another_one(tmp_path: Path) -> None:
    home, stored = filled(tmp_path / "S", 60)
    snapshot = StreamSource(home.stream).snapshot()
    write_stream_meta(home.path, StreamConfig(name="S", storage="file", description="changed"), CREATED)
    assert list(messages(snapshot.scan())) == stored
    shutil.rmtree(home.path)
    filled(tmp_path / "S", 60)
    write_stream_meta(home.path, StreamConfig(name="S", storage="file"), CREATED + 1)
    with pytest.raises(ArchiveError, match="S was deleted and made anew while it was read"):
        snapshot.scan().reader.read_all()


def test_blocks_that_limits_have_removed_cost_no_reading_of_the_others(tmp_path: Path) -> None:
    """index.db may be two minutes old and list blocks that limits have removed since."""
    home = make_home(tmp_path / "S", max_msgs=1000)
    store = home.open(block_size=4096)
    for seq in range(1, 1001):
        store.store_msg(b"s", b"%d" % seq, ts=seq)
    store.write_state(force=True)
    behind = len(home.blocks)
    for seq in range(900, 1000, 2):
        store.remove_msg(seq)
    for seq in range(1001, 1501):
        store.store_msg(b"s", b"%d" % seq, ts=seq)
    store.flush_pending()
    assert not (home.path / "msgs" / "1.blk").exists()
    assert int(home.blocks[2].stem) < behind < int(home.blocks[-1].stem)
    expected = served(store)
    # A snapshot that read this block would report damage.
    middle = home.blocks[2]
    data = middle.read_bytes()
    middle.write_bytes(bytes(len(data)))
    snapshot = StreamSource(home.stream).snapshot()
    middle.write_bytes(data)
    assert not any(block.damaged for block in snapshot.blocks)
    assert list(messages(snapshot.scan())) == expected
    store.close()


def test_a_block_that_is_cut_while_it_is_read_ends_there(tmp_path: Path) -> None:
    home = make_home(tmp_path / "S")
    store = home.open(block_size=8 << 20)
    for _ in range(40):
        store.store_msg(b"s", os.urandom(60_000))
    store.close()
    scan = StreamSource(home.stream).scan(batch_rows=1)
    first = scan.reader.read_next_batch()
    os.truncate(home.blocks[0], 1_000_000)
    rest = list(scan.reader)
    assert first.num_rows == 1
    seqs = [batch.column("sequence")[0].as_py() for batch in rest]
    assert seqs == list(range(2, len(seqs) + 2))
    assert len(seqs) < 39
    assert scan.damage or scan.tail


def test_gaps_that_are_damage_together_cost_no_memory(tmp_path: Path) -> None:
    """Sequences lie as far apart as possible: listing the missing ones between them would fill memory."""
    home = make_home(tmp_path / "S")
    home.open().close()
    step = 1 << 24
    records = [encode(b"S-1", 1 + at * step, 10**18, b"s", b"", b"") for at in range(4000)]
    block = home.path / "msgs" / "1.blk"
    block.parent.mkdir(exist_ok=True)
    (block.parent / "index.db").unlink(missing_ok=True)
    block.write_bytes(b"".join(records))
    with pytest.warns(DamageWarning, match="a record of a sequence that cannot be"):
        read = read_stream(home.path, damage="warn").read_all()["sequence"].to_pylist()
    assert read == [1 + at * step for at in range(256)]
    store = home.open()
    assert [message[0] for message in served(store)] == read
    store.close()


def test_a_record_behind_the_index_is_not_anywhere(tmp_path: Path) -> None:
    home = make_home(tmp_path / "S")
    store = home.open()
    store.store_msg(b"s", b"")
    store.close()
    with (home.path / "msgs" / "1.blk").open("ab") as block:
        block.write(encode(b"S-1", 1 << 60, 10**18, b"s", b"", b""))
    with pytest.warns(DamageWarning, match="a record of a sequence that cannot be"):
        assert read_stream(home.path, damage="warn").read_all()["sequence"].to_pylist() == [1]
