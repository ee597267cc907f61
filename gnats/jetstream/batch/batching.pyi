"""Batches of a stream."""

from enum import IntEnum

class AbandonReason(IntEnum):
    """Why an atomic batch was given up."""

    ABANDONED_TIMEOUT = 0
    ABANDONED_LARGE = 1
    ABANDONED_INCOMPLETE = 2
    ABANDONED_UNSUPPORTED = 3
