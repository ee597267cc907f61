"""Measure a store's cost of a message, without a server: `python -m perf.store [messages]`."""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gnats.bench.stores import append, lookup, scan
from gnats.store.store import FileStore, MemStore


def timed(what: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


def main(n: int) -> None:
    """Print a line for each measurement."""
    payload = b"x" * 128
    print(f"{n} messages of 128 B; ns of CPU for each unless said otherwise")
    with tempfile.TemporaryDirectory(prefix="gnats-perf-") as folder:
        store = FileStore(folder, "PERF")
        print(f"file, append, flushed each 64     {append(store, n, payload):8.0f}")
        print(f"file, load_next                   {scan(store)[1]:8.0f}")
        store.close()
        print(
            f"file, open with its index, ms     {timed(lambda: FileStore(folder, 'PERF').close()) * 1e3:8.2f}"
        )
    with tempfile.TemporaryDirectory(prefix="gnats-perf-") as folder:
        store = FileStore(folder, "PERF")
        print(f"file, append, 100,000 subjects    {append(store, n, payload, 100_000):8.0f}")
        print(f"file, load_next, one in 100,000   {scan(store, [b'perf.store.0000000042'])[1]:8.0f}")
        print(f"file, load_last of a subject      {lookup(store, min(n, 200_000), 100_000):8.0f}")
        store.write_state()
        store.close()
        print(
            f"file, open with its index, ms     {timed(lambda: FileStore(folder, 'PERF').close()) * 1e3:8.2f}"
        )
        Path(folder, "msgs", "index.db").unlink()
        print(
            f"file, open without, ms            {timed(lambda: FileStore(folder, 'PERF').close()) * 1e3:8.2f}"
        )
    with tempfile.TemporaryDirectory(prefix="gnats-perf-") as folder:
        store = FileStore(folder, "PERF", max_msgs_per_subject=1)
        print(f"file, put, one of 100,000 keys    {append(store, n, payload, 100_000):8.0f}")
        store.close()
    with tempfile.TemporaryDirectory(prefix="gnats-perf-") as folder:
        store = FileStore(folder, "PERF", max_msgs=n // 4)
        print(f"file, append over max_msgs        {append(store, n, payload):8.0f}")
        store.close()
    mem = MemStore("PERF")
    print(f"memory, append                    {append(mem, n, payload):8.0f}")
    print(f"memory, load_next                 {scan(mem)[1]:8.0f}")
    mem.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
