"""Random values, with weight on the ends of their ranges."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from gnats.go.text import SECOND

T = TypeVar("T")

ENDS = (
    *(0, 1, -1, 2, -2, 255, 256, 65535, 65536),
    *(2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32),
    *(2**62, 2**63 - 1, 2**63 - 2, -(2**63), 2**63, 2**64 - 1, 2**64 - 2, 2**64),
)
MAX_PAYLOAD = 1 << 20


class Draw(random.Random):
    """A random generator; the same seed gives the same values.

    `alone`: make only values whose effects can be compared between servers.
    """

    alone = False

    def maybe(self, chance: float) -> bool:
        return self.random() < chance

    def one(self, *of: T) -> T:
        return self.choice(of)

    def of(self, weighted: Sequence[tuple[float, T]]) -> T:
        return self.choices([each for _, each in weighted], [weight for weight, _ in weighted])[0]

    def near_power(self, highest: int = 20) -> int:
        """Return a number from 80 below a power of two to 16 above, at least 0."""
        return max(0, (1 << self.randint(0, highest)) + self.randint(-80, 16))

    def small(self) -> int:
        return self.randint(0, 12)

    def number(self, wild: float = 0.4) -> int:
        """Return a number: small, near a power of two or, with probability `wild`, at an end of a range."""
        if self.maybe(wild):
            return self.choice(ENDS)
        return self.near_power() if self.maybe(0.3) else self.small()

    def duration(self, wild: float = 0.3) -> int:
        """Return ns: 1 or 2 s, too long to matter or, with probability `wild`, at an end of a range."""
        if self.maybe(wild):
            return self.choice(ENDS)
        return self.one(1, 2, 30, 3600, 8_000_000_000) * SECOND

    def seconds(self) -> str:
        """Return a duration as text, for headers."""
        return self.one(
            "1s", "1", "2s", "1h", "0", "-1", "never", "8000000000", "9223372036854775807", "5m", ""
        )

    def size(self) -> int:
        """Return a payload's size in bytes: mostly small, else near a power of two up to the largest."""
        if self.maybe(0.6):
            return self.small()
        return min(self.near_power(), MAX_PAYLOAD + self.one(0, 0, 0, 1))

    def fields(self, table: dict[str, object], most: int) -> dict[str, object]:
        """Return some entries of a table, with functions replaced by their results; at most `most`."""
        names = self.sample(sorted(table), min(self.randint(0, most), len(table)))
        return {name: table[name](self) for name in names}  # type: ignore[operator]
