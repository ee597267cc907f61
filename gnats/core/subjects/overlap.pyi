def overlap(subject: bytes, to: bytes) -> bytes | None:
    """The part of an import that is seen as `to` which a subscription to `subject` is about (for tests)."""
