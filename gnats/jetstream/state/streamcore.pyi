"""The parts of a stream."""

from enum import IntEnum

class StreamEvent(IntEnum):
    """Events of a stream for the control plane: `a` of an EV_JETSTREAM."""

    STREAM_FAILED = 1
    BATCH_ABANDONED = 2
    STREAM_DAMAGED = 3
