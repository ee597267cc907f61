"""Blocks into batches of Arrow columns, and what else a snapshot of a stream needs to know of them."""

from collections.abc import Sequence

from gnats.store.index.seqset import SequenceSet

class ReadError(OSError):
    """A block file could not be read."""

class BlockReader:
    """One block, from `start` on: an open file that is not packed, or the content of one that was.

    `name` is the stream's. The descriptor is the caller's; it must stay open. The end of the last block may
    be a record that is being written.
    """

    index: int
    done: bool

    def __init__(
        self, name: str, index: int, content: bytes | int, is_last: bool, start: int = 0, after: int = 0
    ) -> None: ...
    @property
    def last_seq(self) -> int:
        """Of the last record that was read and is no tombstone; 0: there was none."""
    @property
    def end(self) -> int:
        """Where the block ends, in bytes."""
    def last_checksum(self) -> int:
        """What its last 8 bytes say; 0: there are fewer."""
    def holes(self) -> list[tuple[int, int, int, int, str]]:
        """What was no record so far: start, end, first and last sequence (0: not known), and why.

        Without a reason it is the end of a last block, where a record may be being written.
        """

class Scanner:
    """Fills batches from one block after the other.

    Sequences are from first to last, both included, times from start to before end, in ns; without filters
    all subjects are taken. What is in `deleted` is left out.
    """

    def __init__(
        self,
        deleted: SequenceSet,
        first: int,
        last: int,
        start: int | None,
        end: int | None,
        filters: Sequence[bytes],
        most_rows: int,
        most_bytes: int,
    ) -> None: ...
    @property
    def rows(self) -> int:
        """Messages of the batch at hand."""
    @property
    def payload_bytes(self) -> int:
        """Of these."""
    def fill(self, block: BlockReader, low: int) -> bool:
        """Add a block's messages from sequence `low` on; False: the batch is full before its end.

        Raises ReadError.
        """
    def take(self) -> object:
        """The batch, a struct array in a PyCapsule for Arrow; the next one begins."""

def gather(
    block: BlockReader, low: int, deleted: SequenceSet, absent: SequenceSet
) -> tuple[int, int, int, int, int, int, int]:
    """A block's sums, of the messages from sequence `low` on: first sequence of a message, last sequence of
    any record but tombstones, messages, bytes of their records, earliest and latest time, largest sequence of
    a tombstone.

    Sequences of tombstones are added to `deleted`, those between the records that have none to `absent`.
    """

def find_checksum(block: BlockReader, sum64: int) -> int:
    """Where the last record with this checksum ends; -1: there is none."""

def weigh(block: BlockReader, low: int, deleted: SequenceSet, excess: int) -> tuple[int, int]:
    """Bytes of the records of a block's messages from sequence `low` on, and the sequence of the one with
    which they are `excess` bytes or more; 0: they are less."""

class Subjects:
    """How many messages each subject has, to find those that are over a limit."""

    def __init__(self, most: int) -> None: ...
    def count(self, block: BlockReader, low: int, deleted: SequenceSet) -> bool:
        """Add a block's; whether any subject has too many by now."""
    def remove(self, block: BlockReader, low: int, deleted: SequenceSet) -> None:
        """Add the first messages of subjects with too many to `deleted`; blocks come in order."""
