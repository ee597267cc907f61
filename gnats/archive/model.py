"""What is known of a stream's files, as plain data that a task can be sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gnats.archive.streams import Keys, StreamDir
from gnats.store.seqset import SequenceSet

if TYPE_CHECKING:
    from gnats.archive.scan import Scan

BATCH_ROWS = 65536
BATCH_BYTES = 8 << 20
_MOST_SEQ = 2**64 - 1
_SKEW = 3600 * 1_000_000_000
"""ns that a clock may have been set back within a block, whose first and last message's times are known."""


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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A stream as its files were at a moment: what a task needs to scan some of it, and can be pickled.

    `created` is when the stream was, ns since 1970 (0: not known): another one of the same name has another
    time. first_seq is last_seq + 1 when there are no messages. `deleted` is a SequenceSet, encoded.
    """

    stream: StreamDir
    keys: Keys | None
    created: int
    first_seq: int
    last_seq: int
    messages: int
    blocks: tuple[Block, ...]
    deleted: bytes = field(repr=False)
    damage: tuple[Damage, ...] = ()
    vanished: tuple[int, ...] = ()
    """Blocks that index.db knows and that are not there; those in front of a stream are removed like that."""

    def select(self, selection: Selection = ALL) -> tuple[Block, ...]:
        """The blocks that may have messages of a selection."""
        return tuple(each for each in self.blocks if _may_have(each, selection))

    def part(self, blocks: Iterable[Block | int]) -> Snapshot:
        """Of these blocks only, for a task; what is damaged outside of blocks is not repeated in it."""
        wanted = {each if isinstance(each, int) else each.index for each in blocks}
        kept = tuple(each for each in self.blocks if each.index in wanted)
        deleted, _ = SequenceSet.decode(self.deleted)
        if kept and kept[0].after:
            deleted.delete_range(0, kept[0].after)
        if kept and kept[-1].before:
            deleted.delete_range(kept[-1].before, _MOST_SEQ)
        return replace(
            self,
            blocks=kept,
            messages=sum(each.messages for each in kept),
            deleted=deleted.encode(),
            damage=(),
            vanished=(),
        )

    def scan(
        self,
        selection: Selection = ALL,
        blocks: Iterable[Block | int] | None = None,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
    ) -> Scan:
        """Read it. A batch has at most batch_rows messages and about batch_bytes, or one larger one."""
        from gnats.archive.scan import Scan

        return Scan(self if blocks is None else self.part(blocks), selection, batch_rows, batch_bytes)


def _may_have(block: Block, selection: Selection) -> bool:
    if not block.messages:
        return block.damaged
    if block.first_seq is None or block.last_seq is None:
        return True
    if block.last_seq < selection.first_seq:
        return False
    if selection.last_seq is not None and block.first_seq > selection.last_seq:
        return False
    if block.first_ns is None or block.last_ns is None:
        return True
    earliest, latest = min(block.first_ns, block.last_ns) - _SKEW, max(block.first_ns, block.last_ns) + _SKEW
    if selection.start_ns is not None and latest < selection.start_ns:
        return False
    return selection.end_ns is None or earliest < selection.end_ns
