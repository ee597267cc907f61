"""Records of block files."""

def encode(
    block: bytes, seq: int, ts: int, subject: bytes, hdr: bytes, msg: bytes, kind: str = "message"
) -> bytes:
    """A record for the block of this name, `<stream>-<index>`.

    kind is "message", "erased" or "tombstone", ts is in ns since 1970. Raises ValueError when it would be
    over 32 MiB or its subject over 65,535 bytes.
    """

def decode(block: bytes, data: bytes, start: int = 0) -> tuple[str, int, int, bytes, bytes, bytes, int]:
    """The record at `start` of a block: (kind, seq, ts in ns, subject, headers, payload, size).

    Raises EOFError when data ends within it, ValueError when its lengths or its checksum are wrong.
    """
