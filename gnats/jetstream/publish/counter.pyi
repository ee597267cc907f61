def probe_sum(a: bytes, b: bytes) -> bytes | None:
    """a + b in decimal; None when one of them is no number (for tests)."""
