def probe_sum(a: bytes, b: bytes) -> bytes | None:
    """Add two decimal numbers; None when one of them is malformed (for tests)."""
