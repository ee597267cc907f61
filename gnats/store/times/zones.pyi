def has_database() -> bool:
    """Is there a time zone database on this machine?"""

def probe_zone(name: bytes, times: list[int]) -> list[int] | None:
    """Seconds east of UTC at times; None for a name that is no zone's (for tests)."""

def probe_parse(data: bytes, secs: int) -> int | None:
    """Seconds east of UTC at a time in the zone of a file; None for a damaged one (for tests)."""
