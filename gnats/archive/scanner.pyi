"""Read blocks into batches of Arrow columns, and compute the sums that a snapshot of a stream needs."""

from collections.abc import Sequence

from gnats.store.index.seqset import SequenceSet

class ReadError(OSError):
    """A block file could not be read."""

class BlockReader:
    """Reads one block: an open file that is neither compressed nor encrypted, or the content of any block.

    `name` is the stream's. `content` is bytes or a descriptor, which the caller owns and keeps open. `start`
    is the offset to begin at, `after` the sequence of the last message before it (0: none). One thread at a
    time.
    """

    index: int
    done: bool

    def __init__(
        self, name: str, index: int, content: bytes | int, is_last: bool, start: int = 0, after: int = 0
    ) -> None: ...
    @property
    def last_seq(self) -> int:
        """Sequence of the last record read that is not a tombstone; 0: there was none."""
    @property
    def end(self) -> int:
        """Size of the block in bytes."""
    def last_checksum(self) -> int:
        """Return the last 8 bytes of the block as a number; 0 if it has fewer, or they cannot be read."""
    def holes(self) -> list[tuple[int, int, int, int, str]]:
        """Return the parts already read that are not records: (start, end, first and last sequence, reason).

        A sequence of 0 is not known. An empty reason: the end of the last block, where a server may be
        writing.
        """

class Scanner:
    """Fills batches with the messages of one block after the other.

    Reads messages with sequences from first to last, both included, and times from start to before end (ns;
    None: no limit), whose subjects match one of the filters (none: all), and which are not in `deleted`. One
    thread at a time.
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
        """Number of messages in the current batch."""
    @property
    def payload_bytes(self) -> int:
        """Bytes of the payloads in the current batch."""
    def fill(self, block: BlockReader, low: int) -> bool:
        """Add a block's messages from sequence `low` on. False: the batch is full; take() it and call again.

        Raises ReadError or MemoryError.
        """
    def take(self) -> object:
        """Return the batch, a struct array in a PyCapsule, and begin the next. Raises MemoryError."""

def gather(
    block: BlockReader, low: int, deleted: SequenceSet, absent: SequenceSet
) -> tuple[int, int, int, int, int, int, int]:
    """Return the sums of a block's messages from sequence `low` on.

    They are (first sequence of a message, last sequence of any record except tombstones, messages, bytes of
    their records, earliest time, latest time, greatest sequence of a tombstone). Add the sequences of
    tombstones to `deleted`, and the sequences without a message among the block's records to `absent`.
    """

def find_checksum(block: BlockReader, sum64: int) -> int:
    """Return the offset at which the last record with this checksum ends; -1: there is none."""

def weigh(block: BlockReader, low: int, deleted: SequenceSet, excess: int) -> tuple[int, int]:
    """Return (size, seq): the bytes of the records of a block's messages from `low` on, and the first message
    with which they reach `excess` bytes; 0: they do not."""

class Subjects:
    """Counts messages by subject, to find those over a limit of `most` messages per subject."""

    def __init__(self, most: int) -> None: ...
    def count(self, block: BlockReader, low: int, deleted: SequenceSet) -> bool:
        """Count a block's messages; return whether one of their subjects is over the limit."""
    def remove(self, block: BlockReader, low: int, deleted: SequenceSet) -> None:
        """Add a block's messages over the limit to `deleted`, in the order of blocks, after all count()s."""
