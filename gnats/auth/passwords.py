"""Compare passwords and tokens (auth.go) with those of the configuration, in clear or as a bcrypt hash.

A bcrypt comparison may take seconds, depending on the hash's cost: in an event loop, use
check_password_async(). It has threads of its own, so that many logins delay neither logins without bcrypt nor
other work in threads.
"""

import asyncio
import re
import threading
from _operator import _compare_digest as compare_digest  # hmac's own, without loading OpenSSL
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from os import sched_getaffinity

_BCRYPT = re.compile(r"\$2[abxy]\$\d\d\$")
_BCRYPT_BYTES = 72
"""Bytes of a password that bcrypt uses; it ignores the rest."""
MOST_WAITING = 4096
"""Most comparisons that wait. Beyond it, the address with the most of them loses its latest."""


class TooManyWaitError(Exception):
    """A comparison was dropped because too many were waiting."""


class Comparisons:
    """A queue of bcrypt comparisons, and the threads that do them. Addresses take turns.

    May be used from any thread.
    """

    def __init__(self, threads: int, most: int = MOST_WAITING) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[Future[bool], str, str]]] = {}
        self._count = 0
        self._threads = ThreadPoolExecutor(threads, "gnats-bcrypt")

    def __len__(self) -> int:
        """Return the number of comparisons that wait."""
        return self._count

    def submit(self, stored: str, given: str, address: str) -> Future[bool]:
        """Queue a comparison. The future raises TooManyWaitError when the comparison is dropped."""
        future: Future[bool] = Future()
        with self._lock:
            self._waiting.setdefault(address, deque()).append((future, stored, given))
            self._count += 1
            late = None
            if self._count > self._most:
                crowded = max(self._waiting, key=lambda each: len(self._waiting[each]))
                late = self._waiting[crowded].pop()[0]
                self._removed(crowded)
        if late and late.set_running_or_notify_cancel():
            late.set_exception(TooManyWaitError("too many passwords wait to be checked"))
        self._threads.submit(self._compare_next)
        return future

    def give_up(self, future: Future[bool], address: str) -> None:
        """Cancel a comparison that has not begun."""
        future.cancel()
        with self._lock:
            jobs = self._waiting.get(address, ())
            for job in jobs:
                if job[0] is future:
                    self._waiting[address].remove(job)
                    self._removed(address)
                    return

    def _removed(self, address: str) -> None:
        self._count -= 1
        if not self._waiting[address]:
            del self._waiting[address]

    def _compare_next(self) -> None:
        with self._lock:
            if not self._waiting:  # the comparison was dropped or cancelled
                return
            address = next(iter(self._waiting))
            jobs = self._waiting.pop(address)
            future, stored, given = jobs.popleft()
            self._count -= 1
            if jobs:
                self._waiting[address] = jobs  # to the end: the other addresses come first
        if future.set_running_or_notify_cancel():
            future.set_result(_check_bcrypt(stored, given))


@cache
def comparisons() -> Comparisons:
    """Return the process's queue, with a thread for each core but one."""
    return Comparisons(max(1, len(sched_getaffinity(0)) - 1))


def is_bcrypt(stored: str) -> bool:
    """Whether a configured password is a bcrypt hash."""
    return _BCRYPT.match(stored) is not None


def check_password(stored: str, given: str) -> bool:
    """Whether `given` equals `stored`, or has the bcrypt hash `stored`.

    The comparison's time does not depend on where the two differ. A malformed hash matches nothing.
    """
    if is_bcrypt(stored):
        return _check_bcrypt(stored, given)
    return compare_digest(_bytes(stored), _bytes(given))


async def check_password_async(stored: str, given: str, address: str = "") -> bool:
    """Compare as check_password(), but bcrypt hashes in a thread, when the client's `address` has its turn.

    Raises TooManyWaitError.
    """
    if not is_bcrypt(stored):
        return check_password(stored, given)
    pool = comparisons()
    future = pool.submit(stored, given, address)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        pool.give_up(future, address)
        raise


def _check_bcrypt(stored: str, given: str) -> bool:
    import bcrypt

    try:
        return bcrypt.checkpw(_bytes(given)[:_BCRYPT_BYTES], _bytes(stored))
    except ValueError:  # a malformed hash
        return False


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
