"""Write down what consumers have done (filestore.go), soon after it has changed: one thread for all of them.

What changes until then is written with it. A lock is held while one state is written: whoever holds it may
write, or delete, the same files.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from gnats.clock import sleep
from gnats.jetstream.threads import in_thread

WRITE_DELAY = 0.05
"""Seconds between a change of a state and its being written."""
_AT_ONCE = 256
"""States that are held in memory."""


class Stored(Protocol):
    """A consumer whose state is written."""

    @property
    def is_running(self) -> bool: ...

    def state(self) -> bytes | None:
        """What is to be written; None: nothing has changed."""

    def write(self, state: bytes) -> None:
        """Write what state() gave."""


class StateWriter:
    """The states of one server's consumers. Used from the loop, but for what it does in threads."""

    def __init__(self) -> None:
        self._changed: dict[Stored, None] = {}
        self._writing = threading.Lock()
        self._task: asyncio.Task[None] | None = None

    def note(self, consumer: Stored) -> None:
        """Its state has changed."""
        self._changed[consumer] = None
        if self._task is None:
            self._task = asyncio.create_task(self._write_all())

    @contextmanager
    def leaving(self, consumer: Stored) -> Iterator[None]:
        """Nothing is written of it but by whom holds this, nor afterwards."""
        self._changed.pop(consumer, None)
        with self._writing:
            yield

    async def close(self) -> None:
        """All consumers have left."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _write_all(self) -> None:
        try:
            while self._changed:
                await sleep(WRITE_DELAY)
                changed, self._changed = list(self._changed), {}
                for start in range(0, len(changed), _AT_ONCE):
                    states = [
                        (consumer, state)
                        for consumer in changed[start : start + _AT_ONCE]
                        if (state := consumer.state()) is not None
                    ]
                    await in_thread(partial(self._write, states))
        finally:
            self._task = None

    def _write(self, states: list[tuple[Stored, bytes]]) -> None:
        """In a thread."""
        for consumer, state in states:
            with self._writing:
                if consumer.is_running:
                    consumer.write(state)
