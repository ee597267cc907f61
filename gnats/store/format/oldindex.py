"""N.idx files, in which nats-server before 2.10 noted the removed messages of a block (readIndexInfo).

The records of removed messages stay in the block, which does not mark them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnats.go.uvarint import UvarintReader

_MAGIC, _VERSION = 22, 1
_CHECKSUM = 8
_EBIT = 1 << 63


@dataclass(frozen=True, slots=True)
class OldIndex:
    """The contents of a file: the block's sequences, and the checksum of its last record.

    `deleted` are the removed sequences between `first` and `last`.
    """

    msgs: int
    first: int
    last: int
    checksum: int
    deleted: tuple[int, ...]


class _Reader(UvarintReader):
    def sequence(self) -> int:
        return self.number() & ~_EBIT


def read_old_index(path: Path) -> OldIndex | None:
    """Read a file; None if it is missing or not valid. Raises OSError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if data[:2] != bytes((_MAGIC, _VERSION)):
        return None
    reader = _Reader(data, at=2)
    try:
        msgs, _, first, _, last, _, count = (reader.sequence() for _ in range(7))
        checksum = data[reader.at : reader.at + _CHECKSUM]
        reader.at += _CHECKSUM
        if len(checksum) < _CHECKSUM or msgs != last - first + 1 - count:
            return None
        deleted = tuple(first + reader.sequence() for _ in range(count))
    except ValueError:
        return None
    return OldIndex(msgs, first, last, int.from_bytes(checksum, "little"), deleted)
