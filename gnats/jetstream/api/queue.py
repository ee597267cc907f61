"""Queues of waiting API requests (jetstream_api.go): their limits and their order.

Connections take turns, one request each, however many requests each has sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnats.jetstream.api.request import Body, Request, Route
    from gnats.jetstream.control.lanes import Hold

MOST_BYTES = 64 << 20
"""Most bytes of requests that wait in one queue."""
LONG_BODY = 32 << 10
"""From this number of bytes on, a thread decodes the payload."""
_OVERHEAD = 1024
"""Estimated bytes of a request besides its payload and header."""


@dataclass(slots=True, eq=False)
class Job:
    """A request to carry out."""

    request: Request
    route: Route
    cid: int
    """Id of the connection that sent it."""
    queue: RequestQueue
    hold: Hold | None = None
    waits: bool = True
    """The job has neither begun nor been dropped."""

    @property
    def limited(self) -> bool:
        """Whether the number of such requests under way is limited."""
        return self.route.limited or self.body is not None

    @property
    def body(self) -> Body[Any] | None:
        """The payload if it has to be decoded in a thread."""
        return self.route.body if len(self.request.payload) >= LONG_BODY else None

    @property
    def size(self) -> int:
        return len(self.request.payload) + len(self.request.header) + _OVERHEAD


class RequestQueue:
    """Jobs that have arrived and not begun, by connection."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bytes = 0
        self._n = 0
        self._waiting: dict[int, dict[Job, None]] = {}
        self._sizes: dict[int, int] = {}

    def __len__(self) -> int:
        return self._n

    def add(self, job: Job) -> None:
        """Add a job that waits."""
        self._waiting.setdefault(job.cid, {})[job] = None
        self._sizes[job.cid] = self._sizes.get(job.cid, 0) + job.size
        self._n += 1
        self.bytes += job.size

    def remove(self, job: Job) -> None:
        """Remove a job that begins or is dropped."""
        job.waits = False
        waiting = self._waiting[job.cid]
        del waiting[job]
        self._sizes[job.cid] -= job.size
        if not waiting:
            del self._waiting[job.cid], self._sizes[job.cid]
        self._n -= 1
        self.bytes -= job.size

    def is_full(self, limit: int) -> bool:
        """Whether the queue has `limit` requests or more than MOST_BYTES bytes."""
        return self._n >= limit or self.bytes > MOST_BYTES

    def drop(self) -> list[Job]:
        """Remove and return all jobs of the connection with the most bytes, or the most requests.

        Bytes decide when they exceed the limit.
        """
        if self.bytes > MOST_BYTES:
            cid = max(self._sizes, key=self._sizes.__getitem__)
        else:
            cid = max(self._waiting, key=lambda each: len(self._waiting[each]))
        dropped = list(self._waiting[cid])
        for job in dropped:
            self.remove(job)
        return dropped

    def clear(self) -> None:
        """Remove all jobs."""
        for cid in list(self._waiting):
            for job in list(self._waiting[cid]):
                self.remove(job)
