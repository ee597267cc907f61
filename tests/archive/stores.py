"""Store directories for the archive's tests, and the rows of stores and archives."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from gnats.archive.jobs.engine import Inline
from gnats.archive.jobs.job import Archived, Options, Silent
from gnats.archive.jobs.job import archive as run_archive
from gnats.archive.manifest import Manifest, Origin
from gnats.archive.reading.source import StreamSource
from gnats.archive.reading.streams import StreamDir, find_stream
from gnats.archive.target import Target
from gnats.jetstream.disk.metafiles import write_stream_meta
from gnats.jetstream.settings.config import StreamConfig
from gnats.store.store import FileStore

CREATED = 1_760_000_000 * 10**9
START = CREATED + 10**9
DAY = 86_400 * 10**9
SMALL = Options(task_bytes=16 * 1024)
ORDERS = "account=$G/stream=ORDERS"
BLOCK = 4096
"""Small blocks: a stream of a thousand messages has dozens."""


def no_java() -> bool:
    """Return True where Spark cannot run for lack of Java."""
    return shutil.which("java") is None and "JAVA_HOME" not in os.environ


class Writing:
    """A stream with an open store, as in a running server; `rows` has its messages by sequence."""

    def __init__(
        self, root: Path, stream: str = "ORDERS", account: str = "$G", created: int = CREATED
    ) -> None:
        self.root = root
        self.directory = root / "jetstream" / account / "streams" / stream
        self.directory.mkdir(parents=True)
        config = StreamConfig(
            name=stream,
            subjects=[f"{stream.lower()}.>"],
            retention="limits",
            storage="file",
            discard="old",
            num_replicas=1,
        )
        write_stream_meta(self.directory, config, created)
        self.store = FileStore(str(self.directory), stream, block_size=BLOCK)
        self.rows: dict[int, tuple[str, int, bytes]] = {}
        self.dir: StreamDir = find_stream(root, stream, account)

    def publish(self, count: int = 1, step: int = 10**6, size: int = 40) -> None:
        """Store `count` messages of `size` bytes, with times `step` ns apart."""
        for _ in range(count):
            at = self.last + 1
            ns = (self.rows[max(self.rows)][1] if self.rows else START) + step
            subject, payload = f"orders.{at % 7}", (b"%d " % at).ljust(size, b"x")
            headers = b"NATS/1.0\r\nN: %d\r\nTwo: a\r\nTwo: b\r\n\r\n" % at if at % 5 == 0 else b""
            self.store.store_msg(subject.encode(), payload, headers, ts=ns)
            self.last = at
            self.rows[at] = (subject, ns, payload)
        self.store.flush_pending()

    last = 0

    def remove(self, *sequences: int) -> None:
        for each in sequences:
            assert self.store.remove_msg(each)
            del self.rows[each]
        self.store.flush_pending()

    def source(self) -> StreamSource:
        return StreamSource(self.dir)


def listed(out: Path) -> list[dict[str, Any]]:
    """Return the rows of an archive, found by listing its directory, sorted by sequence."""
    rows = [row for path in parquet_files(out) for row in pq.read_table(path, partitioning=None).to_pylist()]
    return sorted(rows, key=lambda row: int(row["sequence"]))


def parquet_files(out: Path) -> Iterator[Path]:
    yield from sorted(out.rglob("*.parquet"))


def plain(rows: list[dict[str, Any]]) -> dict[int, tuple[str, int, bytes]]:
    """Return rows in the form of `Writing.rows`. Raises AssertionError for a repeated sequence."""
    sequences = [row["sequence"] for row in rows]
    assert len(sequences) == len(set(sequences)), "the archive has messages twice"
    return {row["sequence"]: (row["subject"], row["time_ns"], row["payload"]) for row in rows}


def archive(stream: Writing, out: Path, options: Options = SMALL, report: Silent | None = None) -> Archived:
    """Archive a stream in this process."""
    (done,) = run_archive([stream.dir], Target(str(out)), Inline(), options, report or Silent())
    return done


def manifest_of(out: Path) -> Manifest:
    return Manifest(Target(str(out)).open(), Origin("$G", "ORDERS"))
