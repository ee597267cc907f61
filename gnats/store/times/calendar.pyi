def probe_rfc3339(text: bytes) -> tuple[int, int] | None:
    """Return the seconds since 1970 and the nanoseconds of a time; None if it is not valid (for tests)."""

def probe_time_at(ns: int, offset: int) -> bytes:
    """Return a time (ns since 1970) as RFC 3339 in the zone `offset` seconds east of UTC (for tests)."""
