"""Changes of interest that wait for a link to another server; this class is for tests."""

from typing import final

from gnats.core.subjects.sublist import Sublist

@final
class QueueProbe:
    """A queue, and its sinks in sublists; the number of a sublist stands for its account."""

    def __init__(self, sublists: list[Sublist], wanted: int, limit: int = ...) -> None: ...
    def follow(self, number: int) -> None:
        """Follow the account of a sublist."""

    def leave(self, number: int) -> None:
        """Undo follow()."""

    def take(
        self, most: int = ...
    ) -> tuple[bool, list[tuple[int, bytes, bytes, tuple[int, int, int], tuple[int, int, int]]]]:
        """Return whether changes were lost, and changes: (number, subject, queue group, before, now).

        Interest before and now is (local, remote, services).
        """

    @property
    def wakes(self) -> int:
        """The number of times that the queue has woken its link."""

    @property
    def bytes(self) -> int:
        """Bytes of the changes that wait."""
