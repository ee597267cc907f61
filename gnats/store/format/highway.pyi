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
    """Return the checksum (8 bytes) of `pieces` in a row, under the key of a name.

    The name is the stream's for `meta.inf`, `stream/consumer` for a consumer's. (`meta.sum` has the checksum
    in lower-case hex.)
    """

def gathered(name: bytes, *pieces: bytes) -> bytes:
    """Return the same as checksum(), computed as for records; at most 8 pieces (for tests)."""

def key_of(name: bytes) -> bytes:
    """Return the key (32 bytes) of a name."""

def use_wide(allowed: bool) -> bool:
    """Allow AVX2 or not. Return the previous setting (for tests with one thread)."""
