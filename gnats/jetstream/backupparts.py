"""What a backup has besides messages: the state it begins with, or, of one that nats-server before 2.15 made,
the files of its stream."""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path
from typing import IO, Any, Literal

from gnats.gojson import JSONError, ListOf, MapOf, Struct, unmarshal
from gnats.jetstream.backup import BackupError
from gnats.jetstream.document import TIME

_MAX_INT64 = (1 << 63) - 1
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
    """The first entry of a backup. Raises BackupError."""
    if name != b"state.json":
        raise BackupError("expected state.json first")
    try:
        state = unmarshal(data, STATE, "StreamState")
    except JSONError as exc:
        raise BackupError(f"error in state.json: {exc}") from None
    if max(first_seq(state), last_seq(state)) > _MAX_INT64:
        raise BackupError("error in state.json: sequence out of range")
    return state


def first_seq(state: dict[str, Any]) -> int:
    return max(int(str(state.get("first_seq", 0))), 1)


def last_seq(state: dict[str, Any]) -> int:
    return int(str(state.get("last_seq", 0)))


def extract(source: IO[bytes], directory: Path, mode: Literal["r:", "r|"], whose: str = "") -> None:
    """Put the files of a tar file where they belong in a stream's directory.

    `mode` is tarfile's, "r|" for a source that cannot seek. Raises BackupError, OSError.
    """
    try:
        with tarfile.open(fileobj=source, mode=mode) as tar:
            for member in tar:
                if not member.isreg() or member.issparse() or not _IN_TAR.fullmatch(member.name):
                    raise BackupError(f"unexpected content{whose}")
                path = directory / member.name
                path.parent.mkdir(0o700, parents=True, exist_ok=True)
                content = tar.extractfile(member)
                assert content is not None
                with path.open("xb") as to:
                    shutil.copyfileobj(content, to, 1 << 20)
    except (tarfile.TarError, FileExistsError, ValueError) as exc:
        if isinstance(exc, BackupError):
            raise
        raise BackupError("archive/tar: invalid tar header") from None
