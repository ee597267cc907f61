"""Requests to the API that wait (jetstream_api.go): how many and how large they may be, and whose is next.

Whoever asks has its turn after each other that asks, however many requests it has sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnats.jetstream.api.request import Request, Route
    from gnats.jetstream.control.lanes import Turn

MOST_BYTES = 64 << 20
"""Bytes of the requests that wait in one queue."""
_OVERHEAD = 1024
"""Bytes that a request takes besides its payload and its header, about."""


@dataclass(slots=True, eq=False)
class Job:
    """A request that is to be carried out."""

    request: Request
    route: Route
    asker: int
    """The connection that it came from."""
    queue: RequestQueue
    turn: Turn | None = None
    waits: bool = True
    """It has not begun, and has not been dropped."""

    @property
    def size(self) -> int:
        return len(self.request.payload) + len(self.request.header) + _OVERHEAD


class RequestQueue:
    """Jobs, from when they come until they begin; by the connections that they come from."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bytes = 0
        self._n = 0
        self._waiting: dict[int, dict[Job, None]] = {}
        self._sizes: dict[int, int] = {}

    def __len__(self) -> int:
        return self._n

    def add(self, job: Job) -> None:
        """It waits."""
        self._waiting.setdefault(job.asker, {})[job] = None
        self._sizes[job.asker] = self._sizes.get(job.asker, 0) + job.size
        self._n += 1
        self.bytes += job.size

    def remove(self, job: Job) -> None:
        """It waits no more."""
        job.waits = False
        waiting = self._waiting[job.asker]
        del waiting[job]
        self._sizes[job.asker] -= job.size
        if not waiting:
            del self._waiting[job.asker], self._sizes[job.asker]
        self._n -= 1
        self.bytes -= job.size

    def is_full(self, limit: int) -> bool:
        """Are there as many requests, or bytes of them, as there may be?"""
        return self._n >= limit or self.bytes > MOST_BYTES

    def drop(self) -> list[Job]:
        """Take away all that the connection with the most of them has asked for."""
        if self.bytes > MOST_BYTES:
            asker = max(self._sizes, key=self._sizes.__getitem__)
        else:
            asker = max(self._waiting, key=lambda each: len(self._waiting[each]))
        dropped = list(self._waiting[asker])
        for job in dropped:
            self.remove(job)
        return dropped

    def clear(self) -> None:
        """Take away all of them."""
        for asker in list(self._waiting):
            for job in list(self._waiting[asker]):
                self.remove(job)


class Ready:
    """Jobs that may begin, in groups that take turns."""

    def __init__(self) -> None:
        self._groups: dict[object, deque[Job]] = {}

    def add(self, job: Job, group: object) -> None:
        """It may begin."""
        self._groups.setdefault(group, deque()).append(job)

    def next(self, is_busy: Callable[[object], bool] | None = None) -> Job | None:
        """Take the next job, one of a group that is not busy; None: there is none."""
        for group in list(self._groups):
            if is_busy and is_busy(group):
                continue
            jobs = self._groups.pop(group)
            while jobs:
                job = jobs.popleft()
                if job.waits:
                    if jobs:
                        self._groups[group] = jobs  # behind the others
                    return job
        return None
