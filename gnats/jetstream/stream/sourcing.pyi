"""Store the messages that a mirror or a source gets from a consumer of another stream."""

import enum
from collections.abc import Iterable, Sequence

from gnats.core.subjects.transform import SubjectTransform
from gnats.jetstream.stream.stream import Stream
from gnats.store.store import MsgStore

class SourceEvent(enum.IntEnum):
    """Events of a SourceConsumer."""

    LOST = 1
    """It has stopped, because a message is missing or cannot be stored."""
    CAUGHT_UP = 2
    """A mirror has nearly caught up with its origin. Posted once."""

class SourceConsumer:
    """The receiver of one consumer of another stream. Used from the control loop's thread.

    `cname` is the consumer's name. `index_name` identifies the source among the stream's, and `identity` the
    origin among streams of its name; both are written into the messages, and are empty for a mirror. The
    first of `transforms` whose source matches a subject changes it; None leaves it. With `post_caught_up`, a
    mirror posts CAUGHT_UP. Raises MemoryError.
    """

    def __init__(
        self,
        stream: Stream,
        cname: bytes,
        *,
        index_name: str = "",
        identity: str = "",
        transforms: Iterable[SubjectTransform | None] = (),
        post_caught_up: bool = False,
    ) -> None: ...
    @property
    def name(self) -> str:
        """The consumer's name."""
    def start(self, subject: bytes, *, delivered: int, seen: int = 0) -> None:
        """Store the messages that arrive on `subject`.

        `delivered` is the last sequence in the origin that the consumer had delivered before, `seen` the last
        one that this stream had handled (sources only). A mirror skips sequences that it will not get. Raises
        ValueError for an invalid subject, StoreFailure when nothing can be stored, MemoryError.
        """
    def close(self) -> None:
        """Stop storing. Idempotent. Call it before the stream unsubscribes."""
    def numbers(self) -> tuple[int, int, int, int]:
        """Return the position in the origin, and the state.

        (Last sequence handled, last sequence stored (0: none), messages that were pending after it, time of
        the last arrival in monotonic ns).
        """

def last_sourced(store: MsgStore, wanted: Sequence[tuple[str, str, int]]) -> dict[str, tuple[int, str]]:
    """Find the sources' last positions in stored headers: (sequence, identity) by index name.

    `wanted` has (stream name, index name, sequence of this store to search back to). Sources without a
    message are left out. Any thread. Raises MemoryError.
    """
