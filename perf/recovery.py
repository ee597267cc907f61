"""Measure restarts with large stores: `python -m perf.recovery`.

Each server fills a stream of its own, is stopped, and started again as often as requested; then the same with
the index deleted before each start. Times are from the start of the process until it logs that it is ready,
with the files in the page cache as far as they fit. The duplicate window is over before: a start within it
reads the messages stored in it, and a server that was filled faster would have more to read.
"""

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from gnats.bench.streams import Streams

from . import machine
from .servers import Kind, Server, find
from .streams import STREAM, WINDOW, create

SECOND = 1_000_000_000
AT_ONCE = 1_000_000
"""Messages between two lines of progress."""


@dataclass
class Result:
    """The result of one server; seconds are medians of the rounds."""

    server: str
    messages: int
    mib: float
    with_index: float
    without_index: float


def start(kind: Kind, folder: Path) -> tuple[Server, float]:
    """Start a server with its store in `folder`; return it, and the seconds until it was ready."""
    begin = time.monotonic()
    server = Server(kind, jetstream="", store=folder, patience=20)
    return server, time.monotonic() - begin


def stored(client: Streams) -> dict[str, int]:
    """Return the state of the stream."""
    state: dict[str, int] = client.api(f"STREAM.INFO.{STREAM}")["state"]
    return state


def measure(kind: Kind, folder: Path, *, messages: int, size: int, subjects: int, rounds: int) -> Result:
    """Fill a stream, and restart the server. Raises RuntimeError when something is missing afterwards."""
    server, _ = start(kind, folder)
    with server, Streams(server.target) as client:
        create(client, "file", duplicate_window=SECOND)
        while messages > (done := stored(client)["messages"]):
            count = min(AT_ONCE, messages - done)
            client.publish("s.a", count, size=size, window=WINDOW, subjects=subjects, timeout=600)
            print(f"{kind.label}: {done + count:,} messages", end="\r", flush=True)
        state = stored(client)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for index in (True, False):
        for _ in range(rounds):
            if not index:
                for path in folder.rglob("index.db"):
                    path.unlink()
            server, elapsed = start(kind, folder)
            seconds[index].append(elapsed)
            with server, Streams(server.target) as client:
                found = stored(client)
            if found != state:
                raise RuntimeError(f"{kind.label} had {state}, and now {found}")
    return Result(
        kind.label,
        messages,
        state["bytes"] / 2**20,
        statistics.median(seconds[True]),
        statistics.median(seconds[False]),
    )


def report(results: list[Result]) -> str:
    """Return the table in Markdown, with ratios to the first server."""
    base = results[0]
    lines = [
        f"Restart with {base.messages:,} messages, {base.mib:,.0f} MiB; seconds (ratio).",
        "",
        "| server | with index | without |",
        "|---|---:|---:|",
    ]
    lines += [
        f"| {r.server} | {r.with_index:.2f} ({r.with_index / base.with_index:.2f})"
        f" | {r.without_index:.2f} ({r.without_index / base.without_index:.2f}) |"
        for r in results
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure every server that is found; print the table, or write it and the numbers to files."""
    parser = argparse.ArgumentParser(prog="python -m perf.recovery", description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=512, help="bytes of a payload")
    parser.add_argument("--subjects", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="keys of servers, like gnats-1")
    parser.add_argument("--folder", type=Path, help="where the stores are made; it needs room for one")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md, too")
    args = parser.parse_args()
    results = []
    for kind in find():
        if args.only and kind.key not in args.only:
            continue
        with tempfile.TemporaryDirectory(prefix="perf-", dir=args.folder) as folder:
            results.append(
                measure(
                    kind,
                    Path(folder),
                    messages=args.messages,
                    size=args.size,
                    subjects=args.subjects,
                    rounds=args.rounds,
                )
            )
    page = report(results)
    print(page, end="")
    if args.out:
        numbers = {"machine": machine.describe(), "results": [asdict(result) for result in results]}
        args.out.with_suffix(".json").write_text(json.dumps(numbers, indent=1) + "\n")
        args.out.with_suffix(".md").write_text(page)


if __name__ == "__main__":
    main()
