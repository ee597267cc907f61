"""Stream directories laid out as a server lays them out, to test the archive on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnats.archive import Keys, Scan, Selection, StreamDir, StreamSource
from gnats.archive.text import unshow
from gnats.jetstream.disk.metafiles import write_stream_meta
from gnats.jetstream.settings.config import StreamConfig
from gnats.store.store import FileStore

Message = tuple[int, int, bytes, bytes, bytes]
KEY = "a key of the server"
CREATED = 1_700_000_000_000_000_000


@dataclass
class Home:
    """The directory of stream S of account ACC; `limits` are FileStore's, `cipher` "" is no encryption."""

    path: Path
    limits: dict[str, int]
    cipher: str = ""

    @property
    def stream(self) -> StreamDir:
        return StreamDir("ACC", "S", str(self.path))

    @property
    def keys(self) -> Keys | None:
        return Keys(KEY, None, self.cipher) if self.cipher else None

    @property
    def blocks(self) -> list[Path]:
        return sorted((self.path / "msgs").glob("*.blk"), key=lambda path: int(path.stem))

    def open(self, path: Path | None = None, block_size: int = 4096, **options: Any) -> FileStore:
        """Open a FileStore on the directory, or on `path`, a copy of it."""
        if self.cipher:
            options |= {"cipher": self.cipher, "key": KEY.encode(), "account": "ACC"}
        options.setdefault("warn", lambda text: None)
        return FileStore(str(path or self.path), "S", block_size=block_size, **self.limits, **options)

    def scan(self, selection: Selection = Selection(), **options: Any) -> tuple[list[Message], Scan]:  # noqa: B008
        """Return the messages that the archive finds, with headers as the bytes they were, and the Scan."""
        scan = StreamSource(self.stream, self.keys).scan(selection, **options)
        return list(messages(scan)), scan


def messages(scan: Scan) -> Iterator[Message]:
    for batch in scan.reader:
        batch.validate(full=True)
        columns = [
            batch.column(name).to_pylist()
            for name in ("sequence", "time_ns", "subject", "headers", "payload", "size")
        ]
        for seq, ts, subject, headers, payload, size in zip(*columns, strict=True):
            assert size == len(payload)
            yield seq, ts, unshow(subject), encode(headers), payload


def encode(headers: list[tuple[str, list[str]]] | None) -> bytes:
    """Rebuild a header block from the archive's map: exact for well-formed blocks that are grouped by key."""
    if headers is None:
        return b""
    lines = [b"%s: %s\r\n" % (unshow(key), unshow(value)) for key, values in headers for value in values]
    return b"NATS/1.0\r\n" + b"".join(lines) + b"\r\n"


def served(store: FileStore) -> list[Message]:
    """Return every message of a store, in order."""
    found = []
    message = store.get_next()
    while message:
        found.append(message)
        message = store.get_next(start=message[0] + 1)
    return found


def make_home(path: Path, cipher: str = "", **limits: int) -> Home:
    path.mkdir(parents=True)
    home = Home(path, limits, cipher)
    seal = home.keys.server_keys().make(path, "ACC", "S", sync=False) if home.keys else None
    write_stream_meta(
        path,
        StreamConfig(
            name="S",
            storage="file",
            max_msgs=limits.get("max_msgs", -1),
            max_bytes=limits.get("max_bytes", -1),
            max_msgs_per_subject=limits.get("max_msgs_per_subject", -1),
        ),
        CREATED,
        seal,
        sync=False,
    )
    return home
