"""Things that wait, in groups that take turns, so that no group keeps the others waiting."""

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Waiting(Protocol):
    """A thing that may cease to wait before it is its turn."""

    @property
    def waits(self) -> bool: ...


W = TypeVar("W", bound=Waiting)


class Rotation(Generic[W]):
    """Things that wait. Groups take turns, one thing each; those of one group come in order."""

    def __init__(self) -> None:
        self._groups: dict[object, deque[W]] = {}

    def __bool__(self) -> bool:
        """Whether there may be something to return."""
        return bool(self._groups)

    def add(self, thing: W, group: object) -> None:
        """Add a thing to the end of its group."""
        self._groups.setdefault(group, deque()).append(thing)

    def next(self, is_busy: Callable[[object], bool] | None = None) -> W | None:
        """Remove and return the next thing of a group that is not busy; None when there is none."""
        while True:
            free = (group for group in self._groups if not (is_busy and is_busy(group)))
            if (group := next(free, None)) is None:
                return None
            things = self._groups.pop(group)
            while things:
                thing = things.popleft()
                if thing.waits:
                    if things:
                        self._groups[group] = things  # to the end: the other groups come first
                    return thing
