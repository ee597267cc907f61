"""Compression of block files. Damaged data, or more than `limit` bytes of it, raises ValueError."""

def compress_block(data: bytes) -> bytes:
    """Compress the content of a block file. Raises ValueError below 8 bytes."""

def decompress_block(data: bytes, limit: int) -> bytes:
    """Decompress the content of a block file."""
