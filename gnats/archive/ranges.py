"""Sets of sequences as ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator


class Ranges:
    """A set of whole numbers, as inclusive ranges that neither overlap nor touch."""

    def __init__(self, ranges: Iterable[Iterable[int]] = ()) -> None:
        self._ranges: list[tuple[int, int]] = []
        self.add(ranges)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self._ranges == other._ranges

    def __repr__(self) -> str:
        return f"Ranges({self._ranges})"

    __hash__ = None  # type: ignore[assignment]

    @property
    def count(self) -> int:
        return sum(last - first + 1 for first, last in self._ranges)

    def add(self, ranges: Iterable[Iterable[int]]) -> None:
        """Add ranges; empty ones have no effect."""
        new = [(first, last) for first, last in ranges if first <= last]
        if not new:
            return
        merged: list[tuple[int, int]] = []
        for first, last in sorted(self._ranges + new):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], last))
            else:
                merged.append((first, last))
        self._ranges = merged

    def within(self, first: int, last: int) -> Ranges:
        """Return the part from `first` to `last`."""
        return Ranges((max(first, a), min(last, b)) for a, b in self._ranges)

    def without(self, other: Iterable[tuple[int, int]]) -> Ranges:
        """Return the part that is not in `other`."""
        left = Ranges()
        holes = list(other if isinstance(other, Ranges) else Ranges(other))
        for first, last in self._ranges:
            for a, b in holes:
                if b < first or a > last:
                    continue
                left.add([(first, a - 1)])
                first = b + 1
            left.add([(first, last)])
        return left

    def both(self, other: Iterable[tuple[int, int]]) -> Ranges:
        """Return the numbers that are in both sets."""
        return self.without(self.without(other))

    def intersects(self, ranges: Iterable[tuple[int, int]]) -> bool:
        return any(len(self.within(first, last)) for first, last in ranges if first <= last)

    def contains(self, first: int, last: int) -> bool:
        """Whether every number from `first` to `last` is in the set."""
        at = bisect_right(self._ranges, (first, 1 << 64)) - 1
        return at >= 0 and self._ranges[at][0] <= first and last <= self._ranges[at][1]
