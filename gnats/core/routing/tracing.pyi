"""Traces of messages whose headers ask for them."""

def fields(header: bytes) -> list[bytes]:
    """Return the fields of a header block with a value, in order: key, value, key, ..."""
