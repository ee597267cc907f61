"""Close stores while their calls fail, or are counted. test_failing_calls runs this in its own process.

Prints what is wrong.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path

from support.failing import here
from support.streams import GnatsStreams

from gnats.store.store import FileStore, StoreFailure

SECOND = 10**9
NOW = 2_000_000_000 * SECOND


def what_was_written_is_synced(directory: Path) -> None:
    failing = here()
    for always in (True, False):
        store = FileStore(str(directory / f"sync{always}"), "S", sync_always=always)
        store.store_msg(b"a", b"message")
        failing.count()
        store.close()
        if (failing.seen("sync") > 0) is not always:
            print(f"with sync_always {always} there were {failing.seen('sync')} syncs")
    store = FileStore(str(directory / "failing"), "S", sync_always=True)
    store.store_msg(b"a", b"message")
    failing.arm("sync", 1, errno.EIO)
    try:
        store.close()
        print("a sync has failed, and close() does not say so")
    except StoreFailure:
        pass
    failing.disarm()


def what_could_not_be_written_is_not_acknowledged(directory: Path) -> None:
    failing = here()
    with GnatsStreams(directory, 0) as streams:
        streams.add(name="lost", subjects=["lost"])
        stream = streams.streams["lost"]
        stream.store.store_msg(b"lost", b"message", flush=False)
        failing.arm("write", 1, errno.ENOSPC)
        streams.call(stream.close)
        failing.disarm()
        if not stream.failure:
            print("a write has failed, and the stream does not know")


def what_could_not_be_read_expires_later(directory: Path) -> None:
    failing = here()
    store = FileStore(str(directory / "expiry"), "S", block_size=4096, allow_msg_ttl=True)
    for _ in range(100):
        store.store_msg(b"a", bytes(100), b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n", ts=NOW, ttl=1)
    store.maintain(idle=0)
    store.maintain(idle=0)
    failing.arm("open", 1, errno.EMFILE)
    store.expire_msgs(NOW + 2 * SECOND)
    if failing.hits != 1:
        print(f"{failing.hits} calls have failed")
    failing.disarm()
    store.expire_msgs(NOW + 10 * SECOND)
    if left := store.state().msgs:
        print(f"{left} messages stay")
    store.close()


if __name__ == "__main__":
    what_was_written_is_synced(Path(sys.argv[1]))
    what_could_not_be_written_is_not_acknowledged(Path(sys.argv[1]))
    what_could_not_be_read_expires_later(Path(sys.argv[1]))
