"""Default options that pollers use too (const.go). Sizes are in bytes, times in seconds."""

MAX_CONTROL_LINE_SIZE: int
MAX_PAYLOAD_SIZE: int
MAX_PENDING_SIZE: int
DEFAULT_PING_INTERVAL: int
DEFAULT_PING_MAX_OUT: int
DEFAULT_FLUSH_DEADLINE: int
