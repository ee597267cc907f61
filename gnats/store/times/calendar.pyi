def probe_rfc3339(text: bytes) -> tuple[int, int] | None:
    """Seconds since 1970 and nanoseconds; None for what is no time (for tests)."""

def probe_time_at(ns: int, offset: int) -> bytes:
    """A time in a zone, as RFC 3339 (for tests)."""
