"""A stream's files as plain data, which can be sent to a task in another process."""

from __future__ import annotations

from dataclasses import dataclass

BATCH_ROWS = 65536
BATCH_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, order=True)
class Block:
    """A block file at the time of a snapshot.

    `size` is in bytes; `messages` counts those that are not removed; times are ns since 1970. Messages in the
    file with sequences below `low` were removed. Unknown values are None.
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
    """Damage has been found in the block."""
    is_last: bool = False
    """The server writes to this block."""
    after: int | None = None
    """The last sequence of the blocks before this one."""
    before: int | None = None
    """The first sequence of the blocks after this one."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes from `start` to `end` of a block that are not records; block 0: of another file of the stream.

    In a compressed or encrypted block, the bytes count in its decoded content. Some or all of the sequences
    from first_seq to last_seq are missing; None when unknown.
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
    """A part of a stream could not be read."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects messages by sequence, time and subject.

    Sequences from first_seq to last_seq, inclusive; times from start_ns up to, but without, end_ns (ns since
    1970); subjects that match one of the filters (empty: all).
    """

    first_seq: int = 1
    last_seq: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    subjects: tuple[str, ...] = ()


ALL = Selection()
