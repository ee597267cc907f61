"""Default options that pollers use too (const.go, with its names). gnats.options.values.fields reads them from here."""

cpdef enum:
    MAX_CONTROL_LINE_SIZE = 4096      # bytes
    MAX_PAYLOAD_SIZE = 1 << 20        # bytes
    MAX_PENDING_SIZE = 64 << 20       # bytes
    DEFAULT_PING_INTERVAL = 120       # seconds
    DEFAULT_PING_MAX_OUT = 2
    DEFAULT_FLUSH_DEADLINE = 10       # seconds; the option write_deadline
