"""Write the states of consumers (filestore.go) soon after they change, in one thread for all of them.

Changes until then are written together. A lock is held while one state is written: its holder may write or
delete the same files.
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
"""Seconds between the change of a state and its write."""
_AT_ONCE = 256
"""States that wait in memory for their write at the same time."""


class Stored(Protocol):
    """A consumer whose state is written."""

    @property
    def is_running(self) -> bool: ...

    def state(self) -> bytes | None:
        """Return the state to write, None when the consumer has stopped. Raises MemoryError."""

    def write(self, state: bytes) -> None:
        """Write a result of state(). Any thread, with the writer's lock."""


class StateWriter:
    """Writes the states of one server's consumers. Used from the loop's thread; writes in another."""

    def __init__(self) -> None:
        self._changed: dict[Stored, None] = {}
        self._writing = threading.Lock()
        self._task: asyncio.Task[None] | None = None

    def note(self, consumer: Stored) -> None:
        """Write the consumer's state soon, because it has changed."""
        self._changed[consumer] = None
        if self._task is None:
            self._task = asyncio.create_task(self._write_all())

    @contextmanager
    def leaving(self, consumer: Stored) -> Iterator[None]:
        """Keep the writer from the consumer's files during the `with` block.

        The consumer must have stopped (is_running is False), so the writer does not touch them afterwards.
        """
        self._changed.pop(consumer, None)
        with self._writing:
            yield

    async def close(self) -> None:
        """Stop writing. All consumers must have stopped."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _write_all(self) -> None:
        try:
            while self._changed:
                await sleep(WRITE_DELAY)
                changed, self._changed = list(self._changed), {}
                for start in range(0, len(changed), _AT_ONCE):
                    states = []
                    for consumer in changed[start : start + _AT_ONCE]:
                        try:
                            state = consumer.state()
                        except MemoryError:
                            # No later event announces this change: write it with the next ones.
                            self._changed[consumer] = None
                            continue
                        if state is not None:
                            states.append((consumer, state))
                    await in_thread(partial(self._write, states))
        finally:
            self._task = None

    def _write(self, states: list[tuple[Stored, bytes]]) -> None:
        """Write states; in a thread."""
        for consumer, state in states:
            with self._writing:
                if consumer.is_running:
                    consumer.write(state)
