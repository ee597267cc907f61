"""Records of block files."""

OVERHEAD: int
"""The bytes of a record with headers, without those of its subject, headers and payload."""

def encode(
    block: bytes, seq: int, ts: int, subject: bytes, hdr: bytes, msg: bytes, kind: str = "message"
) -> bytes:
    """Encode a record of the block named `block`, `<stream>-<index>`.

    kind is "message", "erased" or "tombstone"; ts is in ns since 1970. Raises ValueError for a record over
    32 MiB, a subject over 65,535 bytes, or another kind.
    """

def decode(block: bytes, data: bytes, start: int = 0) -> tuple[str, int, int, bytes, bytes, bytes, int]:
    """Decode the record at `start` of a block: (kind, seq, ts in ns, subject, headers, payload, size).

    Raises EOFError when data ends within the record, ValueError when its lengths or its checksum are wrong.
    """
