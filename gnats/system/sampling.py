"""Samples Python stacks: the CPU use of threads, and the callbacks that block an event loop."""

import asyncio
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType

from gnats.go.text import SECOND

INTERVAL = 0.01
"""Seconds between two samples."""
BEAT = 0.1
"""Seconds between two checks of the loop."""
MIN_BLOCK = 0.001
"""Seconds within which a loop always counts as responsive, whatever the rate."""
MAX_STACKS = 1000


def cpu_profile(seconds: float, cancel: threading.Event) -> dict[str, int]:
    """Sample for `seconds`, or until `cancel` is set. Return microseconds of CPU by Python stack.

    A stack is "thread;outermost;...;innermost". CPU used by native code, also without the GIL, counts for the
    Python function that called it. The calling thread is left out.
    """
    stacks: Counter[str] = Counter()
    own = threading.get_ident()
    used: dict[int, int] = {}
    end = time.monotonic() + seconds
    while time.monotonic() < end and not cancel.wait(INTERVAL):
        frames = sys._current_frames()
        for thread in threading.enumerate():
            if thread.ident == own or thread.ident not in frames or thread.native_id is None:
                continue
            now = _cpu(thread.native_id)
            spent = now - used.get(thread.native_id, now)
            used[thread.native_id] = now
            if spent > 0:
                stacks[_collapse(thread.name, frames[thread.ident])] += spent
        del frames
    return {stack: ns // 1000 for stack, ns in stacks.items() if ns >= 1000}


def thread_stacks() -> str:
    """Return the name and the stack of every thread, as text."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {names.get(ident, '?')} ({ident}):\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)


class BlockProfile:
    """A thread that checks again and again whether a loop responds, and samples its stack when it does not.

    `rate` is the time, in nanoseconds, that a response may take. Create it in the loop's thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, rate: int) -> None:
        self._loop = loop
        self._threshold = max(rate / SECOND, MIN_BLOCK)
        self._ident = threading.get_ident()
        self._stacks: Counter[str] = Counter()
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="gnats-block-profile", daemon=True).start()

    def stacks(self) -> dict[str, int]:
        """Return the microseconds that the loop was blocked, by stack."""
        return dict(self._stacks)

    def stop(self) -> None:
        """Tell the thread to end; does not wait for it."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(BEAT):
            answered = threading.Event()
            try:
                self._loop.call_soon_threadsafe(answered.set)
            except RuntimeError:  # the loop is closed
                return
            since = time.monotonic()
            while not answered.wait(self._threshold) and not self._stopped.is_set():
                since = self._note(since)

    def _note(self, since: float) -> float:
        now = time.monotonic()
        frame = sys._current_frames().get(self._ident)
        if frame is not None:
            stack = _collapse("loop", frame)
            if stack in self._stacks or len(self._stacks) < MAX_STACKS:
                self._stacks[stack] += round((now - since) * 1e6)
        return now


def _collapse(name: str, frame: FrameType | None) -> str:
    names = []
    while frame is not None:
        code = frame.f_code
        names.append(f"{frame.f_globals.get('__name__', '?')}.{code.co_qualname}")
        frame = frame.f_back
    return ";".join([name, *reversed(names)])


def _cpu(native_id: int) -> int:
    """Return the nanoseconds of CPU that a thread has used; 0 if it has ended."""
    try:
        return int(Path(f"/proc/self/task/{native_id}/schedstat").read_text().split()[0])
    except (OSError, ValueError, IndexError):  # the thread has just ended
        return 0
