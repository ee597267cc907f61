"""Sync a store in two threads, the first of which is slow. test_failing_calls runs this in its own process.

Prints the order in which the threads end.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from support.failing import here

from gnats.store.store import FileStore

TIMEOUT = 60.0
SOON = 0.2


def main(directory: Path) -> None:
    failing = here()
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()
    ended: list[str] = []

    def synced(_: int) -> None:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(TIMEOUT)

    def sync(name: str) -> None:
        store.sync_flushed()
        ended.append(name)
        if name == "second":
            done.set()

    store = FileStore(str(directory), "S", sync_always=True)
    store.store_msg(b"a", b"message")
    failing.on_sync(synced)
    first = threading.Thread(target=sync, args=("first",))
    first.start()
    assert begun.wait(TIMEOUT)
    second = threading.Thread(target=sync, args=("second",))
    second.start()
    if done.wait(SOON):
        print("the second thread did not wait for the first")
    go_on.set()
    first.join(TIMEOUT)
    second.join(TIMEOUT)
    print(" ".join(sorted(ended)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
