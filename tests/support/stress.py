"""Helpers of the stress tests: run jobs at the same time, wait until a server has no clients."""

import asyncio
import os
import threading
from collections.abc import Callable

from gnats.testing import ServerThread

SCALE = int(os.environ.get("GNATS_STRESS", "1"))
"""Factor of the amount of work."""


def together(*jobs: Callable[[], None]) -> None:
    """Run jobs in threads at the same time, wait for all, and raise the first exception that one raised."""
    failed: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as exc:  # noqa: BLE001 - handed to the test
            failed.append(exc)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def settle(server: ServerThread) -> None:
    """Return when the server has no clients left. Raises AssertionError after 60 s."""
    empty = threading.Event()

    def look() -> None:
        if server.server.num_clients == 0:
            empty.set()
        else:
            asyncio.get_running_loop().call_later(0.01, look)

    server.call(lambda _: look())
    assert empty.wait(60), "connections are left"
