"""Backups of streams: snapshot and restore as a client does; build and parse archives."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnats.codec import s2

from .caller import Caller, Message
from .varints import uvarint, varint

CHUNKS = "backup.chunks"
MAGIC = b"NATSARC1"


@dataclass
class Taken:
    """A snapshot: the API's answer (JSON), the backup, the header of the last message, the reply subjects."""

    answer: Any
    data: bytes
    status: bytes
    replies: list[str]


def take(caller: Caller, stream: str, **options: Any) -> Taken:
    """Request a snapshot and acknowledge each chunk. `options` are members of the request."""
    sid = caller.subscribe(CHUNKS)
    body = {"deliver_subject": CHUNKS} | options
    answer = caller.request(f"$JS.API.STREAM.SNAPSHOT.{stream}", body).json
    assert "error" not in answer, answer
    data = b""
    replies = []
    while True:
        message = caller.next_on(CHUNKS)
        data += message.payload
        if message.reply:
            replies.append(message.reply)
            caller.publish(message.reply)
        if not message.payload:
            caller.send(f"UNSUB {sid}\r\n".encode())
            return Taken(answer, data, message.header, replies)


def begin(caller: Caller, stream: str, config: Any, state: Any = None) -> Any:
    """Request a restore; return the API's answer, an error included."""
    body = {"config": config} | ({} if state is None else {"state": state})
    return caller.request(f"$JS.API.STREAM.RESTORE.{stream}", body).json


def give(caller: Caller, stream: str, config: Any, data: bytes, size: int = 128 * 1024) -> Any:
    """Restore a stream from `data` in chunks of `size` bytes; return the last answer."""
    answer = begin(caller, stream, config)
    assert "error" not in answer, answer
    return send(caller, answer["deliver_subject"], pieces(data, size))


def send(caller: Caller, subject: str, chunks: Iterable[bytes]) -> Any:
    """Send chunks and an empty one, which ends the restore; return the first answer that is not empty.

    Raises AssertionError when even the last answer is empty.
    """
    for chunk in (*chunks, b""):
        message: Message = caller.request(subject, chunk)
        if message.payload:
            return message.json
    raise AssertionError("no answer at the end")


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@dataclass
class Entry:
    """An entry of an archive; `ts` is in ns since 1970."""

    name: bytes
    payload: bytes = b""
    ts: int = 0
    seq: int = 0
    header: bytes = b""
    sizes: tuple[int, int] | None = None
    """Lengths of header and payload to claim in place of the true ones."""


def archive(*entries: Entry, end: bool = True) -> bytes:
    """Encode entries as an archive, uncompressed; `end` adds the entry that ends it."""
    out = [MAGIC]
    for entry in (*entries, *((Entry(b""),) if end else ())):
        header, payload = entry.sizes or (len(entry.header), len(entry.payload))
        out += [uvarint(len(entry.name)), varint(entry.ts), uvarint(entry.seq), uvarint(header)]
        out += [uvarint(payload), entry.name, entry.header, entry.payload]
    return b"".join(out)


def backup(*entries: Entry, end: bool = True) -> bytes:
    """Encode entries as a backup: an archive, compressed."""
    return s2.encode(archive(*entries, end=end))


def state(first: int = 1, last: int = 0, consumers: int = 0, **more: Any) -> Entry:
    """Make the first entry of a backup, state.json; `more` are further members."""
    document = {"messages": 0, "bytes": 0, "first_seq": first, "last_seq": last, "consumer_count": consumers}
    return Entry(b"state.json", json.dumps(document | more).encode(), ts=1)


def entries(data: bytes) -> Iterator[Entry]:
    """Parse a whole backup; yield its entries without the one that ends it."""
    plain = s2.decode(data, 1 << 30)
    assert plain[:8] == MAGIC
    at = 8

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = plain[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while True:
        name_n, ts, seq, header_n, payload_n = (number() for _ in range(5))
        ts = (ts >> 1) ^ -(ts & 1)
        name, at = plain[at : at + name_n], at + name_n
        header, at = plain[at : at + header_n], at + header_n
        payload, at = plain[at : at + payload_n], at + payload_n
        if not name:
            assert (ts, seq, header_n, payload_n) == (0, 0, 0, 0) and at == len(plain)
            return
        yield Entry(name, payload, ts, seq, header)


def tar_backup(directory: Path, extra: tuple[tarfile.TarInfo, bytes] | None = None, skip: str = "") -> bytes:
    """Make a backup in the format before 2.15 (tar) from a stream's directory.

    `extra` is a further entry, `skip` the name of a file to leave out.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        names = ["meta.inf", "meta.sum"]
        names += [f"msgs/{path.name}" for path in sorted((directory / "msgs").glob("*.blk"))]
        names += ["msgs/index.db"]
        for path in sorted((directory / "obs").glob("*")):
            names += [f"obs/{path.name}/{name}" for name in ("meta.inf", "meta.sum", "o.dat")]
        for name in names:
            if name == skip or not (directory / name).exists():
                continue
            data = (directory / name).read_bytes()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.pax_headers = {"mtime": "1.5"}
            tar.addfile(info, io.BytesIO(data))
        if extra:
            tar.addfile(extra[0], io.BytesIO(extra[1]))
    return s2.encode(out.getvalue())
