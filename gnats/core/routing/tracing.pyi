"""Traces of messages whose headers ask for them."""

def fields(header: bytes) -> list[tuple[bytes, bytes]]:
    """Return the fields of a header block with a value, in order, as traces show them: [(key, value)]."""
