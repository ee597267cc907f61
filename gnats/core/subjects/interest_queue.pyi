"""Changes of interest that wait for a link to another server; this class is for tests."""

from typing import final

from gnats.core.subjects.sublist import Sublist

_Counts = tuple[int, int, int]
_Changes = list[tuple[int, bytes, bytes, _Counts, _Counts]]

@final
class QueueProbe:
    """A queue, and its sinks in sublists; the number of a sublist stands for its account."""

    def __init__(self, sublists: list[Sublist], wanted: int, limit: int = ...) -> None: ...
    def follow(self, number: int) -> None:
        """Begin to follow the account of a sublist."""

    def leave(self, number: int) -> None:
        """Undo follow()."""

    def take(self, most: int = ...) -> tuple[bool, _Changes]:
        """Return whether changes were lost, and changes: (number, subject, queue group, before, now).

        Interest before and now is (local, remote, services).
        """

    def walk(self, number: int, most: int = ...) -> tuple[bool, bool, _Changes]:
        """Walk through about `most` nodes of a sublist. Return whether that was all, and as take() does."""

    @property
    def wakes(self) -> int:
        """The number of times that the queue has woken its link."""

    @property
    def bytes(self) -> int:
        """Bytes of the changes that wait."""
