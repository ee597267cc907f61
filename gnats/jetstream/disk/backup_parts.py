"""The parts of a backup besides messages (stream_backup.go): the state at its beginning, or the files of the
stream in a tar file of nats-server before 2.15.

This module reads tar files itself, because clients send them, and the time and memory that tarfile uses for a
header have no bound.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gnats.go.json import JSONError, ListOf, MapOf, Struct, unmarshal
from gnats.go.structs import TIME
from gnats.go.text import MAX_INT64
from gnats.jetstream.disk.backup import BackupError

_IN_TAR = re.compile(
    r"(meta\.inf|meta\.sum|msgs/[0-9a-z][0-9a-z.]*|obs/(?!\.{1,2}/)[^/\0]+/(?:meta\.inf|meta\.sum|o\.dat))"
)
STATE: Struct = {
    "messages": "uint64",
    "bytes": "uint64",
    "first_seq": "uint64",
    "first_ts": TIME,
    "last_seq": "uint64",
    "last_ts": TIME,
    "num_subjects": "int",
    "subjects": MapOf("uint64"),
    "num_deleted": "int",
    "deleted": ListOf("uint64"),
    "lost": {"msgs": ListOf("uint64"), "bytes": "uint64"},
    "consumer_count": "int",
}


def read_state(name: bytes, data: bytes) -> dict[str, Any]:
    """Decode the first entry of a backup: the stream's state. Raises BackupError."""
    if name != b"state.json":
        raise BackupError("expected state.json first")
    try:
        state = unmarshal(data, STATE, "StreamState")
    except JSONError as exc:
        raise BackupError(f"error in state.json: {exc}") from None
    if max(first_seq(state), last_seq(state)) > MAX_INT64:
        raise BackupError("error in state.json: sequence out of range")
    return state


def first_seq(state: dict[str, Any]) -> int:
    return max(int(str(state.get("first_seq", 0))), 1)


def last_seq(state: dict[str, Any]) -> int:
    return int(str(state.get("last_seq", 0)))


_TAR_BLOCK = 512
_TAR_PIECE = 1 << 20
_MOST_EXTENDED = 1 << 20
"""Most bytes of the extended header of a file, as in nats-server."""
_REGULAR, _EXTENDED, _LONG_NAME, _LONG_LINK = (b"0", b"\0"), b"x", b"L", b"K"
_OCTAL, _DECIMAL = re.compile(rb"[0-7]*"), re.compile(rb"[0-9]{1,19}")


class _TarError(BackupError):
    """A tar file is damaged, or the data is no tar file."""

    def __init__(self, why: str = "invalid tar header") -> None:
        super().__init__(f"archive/tar: {why}")


@dataclass(frozen=True)
class _Member:
    """The header of a file in a tar file; its content follows in the source."""

    kind: bytes
    name: bytes
    size: int

    @classmethod
    def of(cls, block: bytes) -> _Member:
        """Decode a header block. Raises BackupError."""
        if _octal(block[148:156]) != sum(block[:148]) + 8 * ord(" ") + sum(block[156:]):
            raise _TarError
        name, prefix = (field.partition(b"\0")[0] for field in (block[:100], block[345:500]))
        if prefix and block[257:263] == b"ustar\0":
            name = prefix + b"/" + name
        return cls(block[156:157], name, _octal(block[124:136]))


def _octal(field: bytes) -> int:
    text = field.strip(b" \0")
    if not _OCTAL.fullmatch(text):
        raise _TarError
    return int(text or b"0", 8)


def _read(source: IO[bytes], size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise BackupError("unexpected EOF")
    return data


def _extended(data: bytes) -> dict[bytes, bytes]:
    """Decode the records of an extended header.

    A record is `LENGTH NAME=VALUE` and a line feed; LENGTH counts all of that. Raises BackupError.
    """
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        space = data.find(b" ", at, at + 20)
        if space < 0 or not _DECIMAL.fullmatch(data, at, space):
            raise _TarError
        end = at + int(data[at:space])
        name, equals, value = data[space + 1 : end - 1].partition(b"=")
        if end > len(data) or not equals or data[end - 1 : end] != b"\n":
            raise _TarError
        found[name] = value
        at = end
    return found


def _members(source: IO[bytes], whose: str) -> Iterator[_Member]:
    """Yield the files in a tar file. The caller reads each one's content from the source before the next.

    `whose` ends error texts. Raises BackupError.
    """
    name: bytes | None = None
    size: int | None = None
    while block := source.read(_TAR_BLOCK):
        if len(block) < _TAR_BLOCK:
            raise BackupError("unexpected EOF")
        if not block.strip(b"\0"):
            if source.read(_TAR_BLOCK).strip(b"\0"):
                raise _TarError
            return
        member = _Member.of(block)
        if member.kind in (_EXTENDED, _LONG_NAME, _LONG_LINK):
            if member.size > _MOST_EXTENDED:
                raise _TarError("header field too long")
            data = _read(source, member.size + -member.size % _TAR_BLOCK)[: member.size]
            if member.kind == _LONG_NAME:
                name = data.partition(b"\0")[0]
            elif member.kind == _EXTENDED:
                records = _extended(data)
                if any(each.startswith(b"GNU.sparse.") for each in records):
                    raise BackupError(f"unexpected content{whose}")
                name = records.get(b"path", name)
                if (text := records.get(b"size")) is not None:
                    if not _DECIMAL.fullmatch(text):
                        raise _TarError
                    size = int(text)
            continue
        member = _Member(
            member.kind, member.name if name is None else name, member.size if size is None else size
        )
        name = size = None
        yield member
        _read(source, -member.size % _TAR_BLOCK)


def extract(source: IO[bytes], directory: Path, whose: str = "") -> None:
    """Unpack a tar file into a stream's directory. Does not seek in the source.

    Raises BackupError, OSError.
    """
    for member in _members(source, whose):
        name = os.fsdecode(member.name)
        if member.kind not in _REGULAR or not _IN_TAR.fullmatch(name):
            raise BackupError(f"unexpected content{whose}")
        path = directory / name
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        try:
            to = path.open("xb")
        except FileExistsError:
            raise _TarError from None
        with to:
            left = member.size
            while left:
                left -= to.write(_read(source, min(left, _TAR_PIECE)))
