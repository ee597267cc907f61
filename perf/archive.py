"""Measure the archive's scanner: `python -m perf.archive`.

gnats's store writes the streams; the scanner reads them into Arrow batches on one core, from the page cache,
and verifies every checksum. Rounds of it alternate with copying memory, which shows what the machine can do
at that moment. Bytes are those of the block files. `snapshot` is the time to find out what a stream without
an index holds, which reads all records.

--parquet, --start and --memory measure something else instead (see `perf.archiving`), with messages of 128
bytes.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gnats.archive import StreamDir, StreamSource
from gnats.archive.reading.source import BATCH_BYTES
from gnats.store.store import FileStore

from . import machine

T = TypeVar("T")
GB = 1_000_000_000
FEW = 200_000
"""Messages where it does not say."""
BLOCK = 8 << 20
COPIED = 64 << 20
HEADERS = b"NATS/1.0\r\nNats-Msg-Id: 0123456789\r\nKind: order\r\n\r\n"


@dataclass
class Case:
    """One stream: messages of `size` bytes."""

    name: str
    messages: int
    size: int
    headers: bytes = b""
    compression: str = "none"


@dataclass
class Result:
    """The result of one stream; rates are medians of the rounds, in bytes of block files a second."""

    name: str
    messages: int
    mib: float
    messages_per_second: float
    scan: float
    snapshot: float
    copy: float


def fill(folder: Path, case: Case) -> StreamDir:
    """Write a stream of a thousand subjects, without an index; return its directory."""
    store = FileStore(str(folder), "S", block_size=BLOCK, compression=case.compression)
    payload = os.urandom(case.size)
    if case.compression != "none":
        payload = (b'{"order": 12345, "amount": 99.95}' * (case.size // 33 + 1))[: case.size]
    for i in range(case.messages):
        store.store_msg(b"orders.%d" % (i % 1000), payload, case.headers, flush=i % 100 == 0)
        if i % 100_000 == 0:
            print(f"{case.name}: {i:,} messages", end="\r", flush=True)
    store.close()
    (folder / "msgs" / "index.db").unlink()
    return StreamDir("ACC", "S", str(folder))


def seconds(do: Callable[[], object]) -> float:
    begin = time.perf_counter()
    do()
    return time.perf_counter() - begin


def measure(folder: Path, case: Case, rounds: int, batch_bytes: int) -> Result:
    """Measure one stream. Raises RuntimeError when a scan misses messages."""
    stream = fill(folder, case)
    size = sum(path.stat().st_size for path in (folder / "msgs").glob("*.blk"))
    source = StreamSource(stream)
    snapshot = source.snapshot()
    here, there = np.ones(COPIED, np.uint8), np.ones(COPIED, np.uint8)
    took: dict[str, list[float]] = {"scan": [], "snapshot": [], "copy": []}

    def copy() -> None:
        for _ in range(10):
            np.copyto(there, here)

    def scan() -> None:
        found = snapshot.scan(batch_bytes=batch_bytes)
        for _ in found.reader:
            pass
        if found.messages != case.messages:
            raise RuntimeError(f"{case.name}: {found.messages} of {case.messages} messages")

    for _ in range(rounds):
        took["scan"].append(size / seconds(scan))
        took["snapshot"].append(size / seconds(source.snapshot))
        took["copy"].append(COPIED * 10 / seconds(copy))
    rates = {name: statistics.median(values) for name, values in took.items()}
    return Result(
        case.name,
        case.messages,
        size / 2**20,
        rates["scan"] * case.messages / size,
        rates["scan"],
        rates["snapshot"],
        rates["copy"],
    )


def report(results: list[Result]) -> str:
    """Return the table in Markdown."""
    lines = [
        "Scanning streams into Arrow on one core; GB/s, and of copying memory.",
        "",
        "| stream | messages | MiB | million messages/s | scan | snapshot | copy | scan/copy |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r.name} | {r.messages:,} | {r.mib:,.0f} | {r.messages_per_second / 1e6:.2f} | {r.scan / GB:.2f}"
        f" | {r.snapshot / GB:.2f} | {r.copy / GB:.2f} | {r.scan / r.copy:.2f} |"
        for r in results
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure each stream; print the table, or write it and the numbers to files."""
    parser = argparse.ArgumentParser(prog="python -m perf.archive", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000, help="messages of 128 bytes")
    parser.add_argument("--large", type=int, default=30_000, help="messages of 64 KiB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-bytes", type=int, default=BATCH_BYTES)
    parser.add_argument("--folder", type=Path, help="where the stores are made; it needs room for one")
    for name, what in (
        ("--parquet", "a store to Parquet, by the job and by others"),
        ("--start", "runs with nothing new"),
        ("--memory", "memory of a task"),
    ):
        parser.add_argument(name, type=int, nargs="?", const=FEW, metavar="MESSAGES", help=what)
    parser.add_argument("--consumed", type=int, default=FEW, help="messages that a client consumes at most")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md, too")
    args = parser.parse_args()
    page, results = _scanning(args) if not (args.parquet or args.start or args.memory) else _archiving(args)
    print(page, end="")
    if args.out:
        numbers = {"machine": machine.describe(), "results": [asdict(result) for result in results]}
        args.out.with_suffix(".json").write_text(json.dumps(numbers, indent=1) + "\n")
        args.out.with_suffix(".md").write_text(page)


def _scanning(args: argparse.Namespace) -> tuple[str, list[Any]]:
    cases = [
        Case("128 B", args.messages, 128),
        Case("128 B and headers", args.messages // 5, 128, HEADERS),
        Case("128 B, compressed", args.messages // 5, 128, compression="s2"),
        Case("64 KiB", args.large, 65536),
    ]
    results = []
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="perf-", dir=args.folder) as folder:
            results.append(measure(Path(folder), case, args.rounds, args.batch_bytes))
    return report(results), results


def _archiving(args: argparse.Namespace) -> tuple[str, list[Any]]:
    from . import archiving

    pages: list[str] = []
    results: list[Any] = []

    def add(measured: list[T], report: Callable[[list[T]], str]) -> None:
        pages.append(report(measured))
        results.extend(measured)

    @contextmanager
    def folder() -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="perf-", dir=args.folder) as name:
            yield Path(name)

    if args.parquet:
        with folder() as place:
            rates = archiving.measure_parquet(place, args.parquet, args.consumed, args.rounds)
        add(rates, archiving.report_parquet)
    if args.start:
        with folder() as place:
            add(archiving.measure_start(place, args.start, args.rounds), archiving.report_start)
    if args.memory:
        with folder() as place:
            add(archiving.measure_memory(place, args.memory), archiving.report_memory)
    return "\n".join(pages), results


if __name__ == "__main__":
    main()
