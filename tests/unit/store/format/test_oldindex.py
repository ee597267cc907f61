"""The N.idx files of nats-server before 2.10, whole and damaged."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st
from support.varints import uvarint

from gnats.store.format.oldindex import OldIndex, read_old_index


def encoded(index: OldIndex) -> bytes:
    numbers = [index.msgs, 1000, index.first, 5, index.last, 7, len(index.deleted)]
    gaps = [seq - index.first for seq in index.deleted]
    checksum = index.checksum.to_bytes(8, "little")
    return b"\x16\x01" + b"".join(map(uvarint, numbers)) + checksum + b"".join(map(uvarint, gaps))


WHOLE = OldIndex(96, 300, 400, 0x1234567890ABCDEF, (301, 305, 350, 398, 399))


def written(path: Path, data: bytes) -> OldIndex | None:
    path.write_bytes(data)
    return read_old_index(path)


def test_what_was_removed(tmp_path: Path) -> None:
    assert read_old_index(tmp_path / "1.idx") is None
    assert written(tmp_path / "1.idx", encoded(WHOLE)) == WHOLE


def test_one_that_is_cut_short_or_of_another_version_is_none(tmp_path: Path) -> None:
    whole = encoded(WHOLE)
    for size in range(len(whole)):
        assert written(tmp_path / "1.idx", whole[:size]) is None
    assert written(tmp_path / "1.idx", b"\x16\x02" + whole[2:]) is None


def test_numbers_that_do_not_go_together_are_none(tmp_path: Path) -> None:
    wrong = OldIndex(97, 300, 400, 1, WHOLE.deleted)
    assert written(tmp_path / "1.idx", encoded(wrong)) is None


@given(st.binary(max_size=60))
def test_noise_is_nothing_or_consistent(data: bytes) -> None:
    with TemporaryDirectory() as directory:
        found = written(Path(directory) / "1.idx", b"\x16\x01" + data)
    assert found is None or found.msgs == found.last - found.first + 1 - len(found.deleted)
