"""The subscription trie of an account."""

from collections.abc import Iterable
from typing import final

@final
class Handle:
    """Owns a subscription, which it takes out of the sublist when it is collected."""

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
        """False when it was not in this sublist."""

    def unsubscribe_all(self, handles: Iterable[Handle]) -> None:
        """Remove several under one lock; those that are not in this sublist are skipped."""

    def update_weight(self, handle: Handle, weight: int) -> None:
        """The number of members that a remote queue subscription stands for."""

    def lookup(self, subject: bytes) -> tuple[list[bytes], list[list[bytes]]]:
        """The sids that get a message to this subject: those of no queue group, and those of each group."""

    def reverse_lookup(self, subject: bytes) -> tuple[list[bytes], list[list[bytes]]]:
        """As lookup, of the subscriptions that have a literal subject in common with this one."""

    def interest(self, subject: bytes) -> tuple[int, int]:
        """How many subscriptions a message to this subject matches, outside of queue groups and in them."""

    def interested(self, subject: bytes) -> bool:
        """Would a message to this subject reach anyone?"""

    def generation(self, subject: bytes) -> int:
        """Stays the same for as long as the result of a lookup of this subject does."""

    def count(self) -> int:
        """How many subscriptions it holds."""

    def stats(self) -> dict[str, int]:
        """Subscriptions and trie nodes now; inserts, removes and matches so far."""

    def subs(self) -> list[tuple[bytes, bytes, bytes]]:
        """Subject, queue group (empty for none) and sid of every subscription, in no order."""
