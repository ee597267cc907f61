"""Traces of messages whose headers ask for them."""

def fields(header: bytes) -> list[tuple[bytes, bytes]]:
    """The fields of a header block that have a value, in order, as traces have them: (key, value)."""
