def sampled(header: bytes) -> bool:
    """Return whether this header block asks for a measurement."""

def fields(header: bytes) -> list[tuple[bytes, bytes]]:
    """Return the fields of a header block in order, [(key, value)]; [] if the block is not well-formed."""
