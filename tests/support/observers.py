"""A member of the meta group that sees what is assigned, and never leads."""

from __future__ import annotations

from gnats.jetstream.cluster.entries import decode_entry
from gnats.jetstream.cluster.meta import MetaState

NORMAL = 0


class Observer:
    """The group's state machine: it keeps what is assigned."""

    def __init__(self, peer: str) -> None:
        self.meta = MetaState(peer)

    def apply(self, index: int, entries: list[tuple[int, bytes]]) -> None:
        for kind, data in entries:
            if kind == NORMAL:
                self.meta.apply(decode_entry(data))

    def restore(self, data: bytes) -> None:
        self.meta.restore(data)

    def taken(self) -> None:
        """Nothing waits until all has come."""

    def lead(self, term: int) -> None:
        raise AssertionError("an observer leads")

    def follow(self) -> None: ...

    def leader_changed(self, leader: str) -> None: ...

    def stopped(self, why: str) -> None:
        raise AssertionError(why)
