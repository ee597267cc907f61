"""Compare passwords and tokens (auth.go) with those of the configuration, in clear or as a bcrypt hash.

A bcrypt comparison takes as long as its cost says, seconds for a high one: in an event loop use
check_password_async. It compares in threads that do nothing else, so that many logins hold up neither those
that need no comparison nor what else is done in threads.
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
"""Of a longer password bcrypt sees no more."""
MOST_WAITING = 4096
"""Comparisons that may wait; then the address with the most of them loses its latest."""


class TooManyWaitError(Exception):
    """A comparison was given up: too many wait for theirs."""


class Comparisons:
    """Bcrypt comparisons under way and waiting: addresses take turns, each one's come in order.

    It may be used from any thread.
    """

    def __init__(self, threads: int, most: int = MOST_WAITING) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[Future[bool], str, str]]] = {}
        self._count = 0
        self._threads = ThreadPoolExecutor(threads, "gnats-bcrypt")

    def __len__(self) -> int:
        """Comparisons that wait."""
        return self._count

    def submit(self, stored: str, given: str, address: str) -> Future[bool]:
        """Compare when the address has its turn; TooManyWaitError when that is too late."""
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
        """Nobody waits for a comparison any more: if it has not begun, it never will."""
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
            if not self._waiting:  # it was given up
                return
            address = next(iter(self._waiting))
            jobs = self._waiting.pop(address)
            future, stored, given = jobs.popleft()
            self._count -= 1
            if jobs:
                self._waiting[address] = jobs  # behind the others
        if future.set_running_or_notify_cancel():
            future.set_result(_check_bcrypt(stored, given))


@cache
def comparisons() -> Comparisons:
    """The process's: a thread for each core but one, which is left to all else."""
    return Comparisons(max(1, len(sched_getaffinity(0)) - 1))


def is_bcrypt(stored: str) -> bool:
    """Is a configured password a bcrypt hash?"""
    return _BCRYPT.match(stored) is not None


def check_password(stored: str, given: str) -> bool:
    """Is `given` the password that `stored` is, or is the hash of?

    The time that it takes does not depend on where the two differ. A hash that bcrypt cannot read matches
    nothing.
    """
    if is_bcrypt(stored):
        return _check_bcrypt(stored, given)
    return compare_digest(_bytes(stored), _bytes(given))


async def check_password_async(stored: str, given: str, address: str = "") -> bool:
    """As check_password; a bcrypt hash is compared in a thread, when `address` has its turn.

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
    except ValueError:  # not a hash after all
        return False


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
