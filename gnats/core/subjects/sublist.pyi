"""The subscriptions of an account, and the trie that matches them."""

from collections.abc import Iterable
from typing import final

@final
class Handle:
    """Owns a subscription; removes it from the sublist when collected."""

    @property
    def subject(self) -> bytes: ...
    @property
    def queue(self) -> bytes: ...
    @property
    def sid(self) -> bytes: ...

@final
class Sublist:
    """Subscriptions by subject; these methods are for tests and tools."""

    def __init__(self) -> None: ...
    def subscribe(
        self, subject: bytes, queue: bytes = b"", sid: bytes = b"", kind: int = 0, weight: int = 0
    ) -> Handle:
        """Insert a subscription of a connection of this kind; the handle owns it.

        Raises ValueError for a subject that is not valid, MemoryError.
        """

    def unsubscribe(self, handle: Handle) -> bool:
        """Remove a subscription. Return False when it was not in this sublist."""

    def unsubscribe_all(self, handles: Iterable[Handle]) -> None:
        """Remove several under one lock, skipping those that are not in this sublist."""

    def update_weight(self, handle: Handle, weight: int) -> None:
        """Set the number of members that a remote queue subscription stands for."""

    def lookup(self, subject: bytes) -> tuple[list[bytes], list[list[bytes]]]:
        """Return the sids that match a subject: those in no queue group, and a list for each group."""

    def reverse_lookup(self, subject: bytes) -> tuple[list[bytes], list[list[bytes]]]:
        """Like lookup(), for subscriptions that have a literal subject in common with `subject`."""

    def interest(self, subject: bytes) -> tuple[int, int]:
        """Count the matching subscriptions: (outside of queue groups, in queue groups)."""

    def interested(self, subject: bytes) -> bool:
        """Return whether a subscription matches."""

    def generation(self, subject: bytes) -> int:
        """Return the subject's generation: as long as it stays the same, so does the result of a lookup."""

    def count(self) -> int:
        """Return the number of subscriptions."""

    def stats(self) -> dict[str, int]:
        """Return subscriptions and trie nodes now; inserts, removes, matches and results since the start."""

    def subs(self) -> list[tuple[bytes, bytes, bytes]]:
        """Subject, queue group (empty for none) and sid of every subscription, in no order."""
