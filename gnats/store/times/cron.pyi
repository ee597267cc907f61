def probe_due(pattern: bytes, zone: bytes | None, ts: int, now: int) -> tuple[int, int, int]:
    """Return a ScheduleKind, when it is due (ns since 1970), and the zone's offset then (for tests)."""
