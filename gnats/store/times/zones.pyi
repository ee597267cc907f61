def has_database() -> bool:
    """Return whether this machine has a time zone database."""

def probe_zone(name: bytes, times: list[int]) -> list[int] | None:
    """Return the seconds east of UTC at each time; None if `name` is not a zone (for tests)."""

def probe_parse(data: bytes, secs: int) -> int | None:
    """Return the seconds east of UTC at a time, by a zone file's data; None if it is damaged (for tests)."""
