"""The parts of a consumer."""

from enum import IntEnum

class ConsumerEvent(IntEnum):
    """Events of a consumer for the control plane: `a` of an EV_JETSTREAM; see Consumer.notice."""

    CONSUMER_ACKED = 1
    CONSUMER_NAKED = 2
    CONSUMER_TERMINATED = 3
    CONSUMER_MAX_DELIVERIES = 4
    CONSUMER_INACTIVE = 5
    CONSUMER_PINNED = 6
    CONSUMER_UNPINNED = 7
    CONSUMER_UNPAUSED = 8
    CONSUMER_DIRTY = 9
    CONSUMER_BAD_NAK = 10
    CONSUMER_ACK_BEYOND = 11
