"""What a stream is made of."""

from enum import IntEnum

class StreamEvent(IntEnum):
    """What a stream tells the control plane: `a` of an EV_JETSTREAM."""

    STREAM_FAILED = 1
    BATCH_ABANDONED = 2
    STREAM_DAMAGED = 3
