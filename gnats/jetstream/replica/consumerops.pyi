"""Entries of a consumer's Raft group, in nats-server's layouts."""

DELIVERED_OP: int
ACKS_OP: int
SKIP_OP: int
ADD_REQUEST_OP: int
REMOVE_REQUEST_OP: int
RESET_OP: int
"""The first byte of an entry."""

def encode_delivered(dseq: int, sseq: int, dc: int, ts: int) -> bytes:
    """Encode a delivery."""

def encode_acks(dseq: int, sseq: int) -> bytes:
    """Encode an acknowledgement."""

def encode_skip(sseq: int) -> bytes:
    """Encode a skip to the next stream sequence."""

def decode(entry: bytes) -> tuple[str, int, int, int, int] | None:
    """Decode an entry: (what, consumer sequence, stream sequence, deliveries, time).

    None for one that is invalid.
    """
