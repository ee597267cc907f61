def sampled(header: bytes) -> bool:
    """Does this header block ask for a measurement?"""

def fields(header: bytes) -> list[tuple[bytes, bytes]]:
    """The fields of a header block in order, (key, value); none where the block is not well-formed."""
