"""Parse sched.db without the code under test."""

from __future__ import annotations

import struct
from pathlib import Path

Scheduled = dict[bytes, tuple[int, int]]
"""By subject: the sequence of the schedule, and the time that it is due, in ns since 1970."""


def read_schedules(path: Path) -> Scheduled:
    return parse_schedules(path.read_bytes())


def parse_schedules(data: bytes) -> Scheduled:
    """Parse the bytes of a sched.db. Raises AssertionError for another version or bytes left over."""
    version, count, _ = struct.unpack_from("<BQQ", data)
    assert version == 1
    found: Scheduled = {}
    data = data[17:]
    for _ in range(count):
        n = int.from_bytes(data[:2], "little")
        subject, data = data[2 : 2 + n], data[2 + n :]
        zigzag, data = _varint(data)
        seq, data = _varint(data)
        found[subject] = seq, zigzag >> 1 ^ -(zigzag & 1)
    assert not data
    return found


def _varint(data: bytes) -> tuple[int, bytes]:
    value = at = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << 7 * at
        at += 1
    return value | data[at] << 7 * at, data[at + 1 :]
