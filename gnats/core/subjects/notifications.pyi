"""Notifications of first and last subscriptions (sublist.go); these classes are for tests."""

from typing import final

from gnats.core.subjects.sublist import Sublist

@final
class NotificationList:
    """The notifications of a sublist."""

    def __init__(self, sublist: Sublist) -> None: ...
    def register(self, subject: bytes, queue: bytes = b"") -> InterestLog:
        """Register one for a subject in a queue group, or in none. Raises MemoryError."""

@final
class InterestLog:
    """Hears of a subject in a queue group and counts the changes."""

    def __init__(self, owner: NotificationList, subject: bytes, queue: bytes) -> None: ...
    @property
    def changes(self) -> int:
        """The number of times that the first subscription came or the last one went."""

    @property
    def interest(self) -> bool:
        """Whether there is a subscription."""

@final
class SinkProbe:
    """A sink of the changes of interest in a sublist, until close(). It hears of what is there first."""

    def __init__(self, sublist: Sublist) -> None: ...
    changes: list[tuple[bytes, bytes, tuple[int, int, int], tuple[int, int, int]]]
    """Subject, queue group, interest before and interest now: local, remote, services."""

    def close(self) -> None: ...
