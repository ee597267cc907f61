"""Run long work in a thread, so that it does not hold up the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work`, which should release the GIL, in a thread; return its result.

    A caller that is cancelled meanwhile waits for the end of `work` before it raises CancelledError, so that
    it does not free anything that `work` still uses.
    """
    done = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        await asyncio.wait([done])
        if not done.cancelled():
            done.exception()  # retrieve it: asyncio would log it as unhandled
        raise
