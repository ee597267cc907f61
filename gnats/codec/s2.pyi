"""S2 compression. Damaged data, or data that decompresses to more than `limit` bytes, raises ValueError."""

def encode(data: bytes) -> bytes:
    """Compress data to an S2 stream."""

def encode_block(data: bytes) -> bytes:
    """Compress data to a block that is no part of a stream."""

def decode(data: bytes, limit: int) -> bytes:
    """Decompress an S2 stream."""

def decode_block(data: bytes, limit: int) -> bytes:
    """Decompress a block that is no part of a stream."""

def crc(data: bytes) -> int:
    """CRC-32C (for tests)."""

def use_wide(allowed: bool) -> bool:
    """Allow the processor's instruction for CRC-32C or not. Return the previous setting (for tests)."""
