"""S2 compression. What is damaged, or larger than a limit in bytes, raises ValueError."""

def encode(data: bytes) -> bytes:
    """A stream."""

def decode(data: bytes, limit: int) -> bytes:
    """What a stream stands for."""

def compress_block(data: bytes) -> bytes:
    """A block file as it is stored compressed. Raises ValueError below 8 bytes."""

def decompress_block(data: bytes, limit: int) -> bytes:
    """The block file that was compressed."""

def crc(data: bytes) -> int:
    """CRC-32C (for tests)."""

def use_wide(allowed: bool) -> bool:
    """CRC-32C by the processor's instruction where there is one, or not; what was so before (for tests)."""
