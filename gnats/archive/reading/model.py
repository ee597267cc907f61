"""What is known of a stream's files, as plain data that a task can be sent."""

from __future__ import annotations

from dataclasses import dataclass

BATCH_ROWS = 65536
BATCH_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, order=True)
class Block:
    """A block file as it was looked at.

    `size` is in bytes, `messages` are those that are not removed; times are ns since 1970. Of the messages in
    the file, those below `low` were removed. What is not known is None.
    """

    index: int
    path: str
    size: int
    first_seq: int | None = None
    last_seq: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    messages: int = 0
    low: int = 1
    damaged: bool = False
    """Something of it has been found to be."""
    is_last: bool = False
    """It is the one that is written to."""
    after: int | None = None
    """The last sequence of the blocks before it."""
    before: int | None = None
    """The first sequence of the blocks behind it."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes from `start` to `end` of a block that are no records; block 0: of another file of the stream.

    Of a compressed or encrypted block they are counted in what it stands for. The sequences from first_seq to
    last_seq are missing, or some of them, where that is known.
    """

    block: int
    start: int
    end: int
    reason: str
    first_seq: int | None = None
    last_seq: int | None = None

    def __str__(self) -> str:
        where = f"block {self.block}, bytes {self.start} to {self.end}: " if self.block else ""
        if self.first_seq is None and self.last_seq is None:
            return where + self.reason
        first = "?" if self.first_seq is None else self.first_seq
        last = "?" if self.last_seq is None else self.last_seq
        return f"{where}{self.reason} (sequences {first} to {last})"


class DamageWarning(UserWarning):
    """Some of a stream could not be read."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages: sequences from first_seq to last_seq, both included; times from start_ns to before
    end_ns, ns since 1970; subjects that one of the filters takes (none: all)."""

    first_seq: int = 1
    last_seq: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    subjects: tuple[str, ...] = ()


ALL = Selection()
