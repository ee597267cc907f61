def overlap(subject: bytes, to: bytes) -> bytes | None:
    """Return the part of an import's `to` that a subscription to `subject` overlaps, or None (for tests)."""
