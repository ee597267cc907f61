"""What a mirror, or a stream with sources, gets from a consumer of another stream."""

import enum
from collections.abc import Iterable, Sequence

from gnats.core.subjects.transform import SubjectTransform
from gnats.jetstream.stream.stream import Stream
from gnats.store.store import MsgStore

class SourceEvent(enum.IntEnum):
    """What a SourceConsumer tells."""

    LOST = 1
    """It takes nothing any more: a message is missing, or cannot be stored."""
    CAUGHT_UP = 2
    """A mirror is nearly as far as its origin. Told once."""

class SourceConsumer:
    """One consumer of another stream, for as long as it lasts. Used from the control loop's thread.

    `cname` is the consumer's name. `index_name` tells the source from others and is written into the
    messages, with `identity`, which tells the origin from others of its name; for a mirror both are empty.
    The first of `transforms` whose source matches a subject changes it; None changes nothing. With
    `tell_caught_up`, a mirror says so. Raises MemoryError.
    """

    def __init__(
        self,
        stream: Stream,
        cname: bytes,
        *,
        index_name: str = "",
        identity: str = "",
        transforms: Iterable[SubjectTransform | None] = (),
        tell_caught_up: bool = False,
    ) -> None: ...
    @property
    def name(self) -> str:
        """The consumer's name."""
    def start(self, subject: bytes, *, delivered: int, seen: int = 0) -> None:
        """Store what is delivered to `subject`. The consumer has `delivered` so far, this stream has `seen`,
        of a source.

        Sequences that a mirror will not get are left out. Raises ValueError for an invalid subject,
        StoreFailure when nothing can be stored, MemoryError.
        """
    def close(self) -> None:
        """Store nothing more. Idempotent; before the stream unsubscribes."""
    def numbers(self) -> tuple[int, int, int, int]:
        """How far it has come in the origin, the sequence there of the last message that has been stored (0:
        none has), how many were behind it, and when something came last (monotonic ns).
        """

def last_sourced(store: MsgStore, wanted: Sequence[tuple[str, str, int]]) -> dict[str, tuple[int, str]]:
    """How far each source had come, by the headers of what is stored: (sequence, identity) by index name, of
    those that are found. `wanted` has (stream name, index name, sequence in this store that need not be
    looked before).

    Any thread. Raises MemoryError.
    """
