"""HighwayHash-64, the checksum of all files of a store."""

from typing_extensions import Buffer

class HighwayHash:
    """A hash of the data given to update(), under a key of 32 bytes; used like hashlib's objects.

    Raises ValueError for a key of another length.
    """

    def __init__(self, key: Buffer) -> None: ...
    def update(self, data: Buffer) -> None: ...
    def digest(self) -> bytes:
        """Return the checksum as the 8 bytes that are stored."""

def checksum(name: bytes, *pieces: Buffer) -> bytes:
    """The 8 bytes stored as the checksum of `pieces`, one after the other, under the key of a name: of the
    stream for `meta.inf`, of `stream/consumer` for a consumer's. (`meta.sum` has them in lower-case hex.)"""

def gathered(name: bytes, *pieces: bytes) -> bytes:
    """What checksum() says, by the way that records take; at most 8 pieces (for tests)."""

def key_of(name: bytes) -> bytes:
    """Return the key (32 bytes) of a name."""

def use_wide(allowed: bool) -> bool:
    """Hash with AVX2 where the processor has it, or not; what was so before (for tests, of one thread)."""
