"""The atomic and fast batches of a stream."""

from enum import IntEnum

class AbandonReason(IntEnum):
    """The reasons to abandon an atomic batch."""

    ABANDONED_TIMEOUT = 0
    ABANDONED_LARGE = 1
    ABANDONED_INCOMPLETE = 2
    ABANDONED_UNSUPPORTED = 3
