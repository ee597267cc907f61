"""Acknowledgements: reply subjects and payloads; for tests."""

def read_reply(subject: bytes) -> tuple[int, int, int, int, int] | None:
    """Decode a reply subject: (stream seq, consumer seq, deliveries, ts, pending); None for others."""

def write_reply(prefix: bytes, sseq: int, dseq: int, dc: int, ts: int, pending: int) -> bytes:
    """Return the reply subject for these numbers. Raises MemoryError."""

def read_ack(payload: bytes) -> tuple[str, bytes]:
    """Return the kind of acknowledgement, and the payload after the verb."""

def read_duration(text: bytes) -> int | None:
    """Decode a duration; return ns, None when it is malformed."""

def read_nak(rest: bytes) -> tuple[int | None, bool]:
    """Decode the text after -NAK: (delay in ns or None, whether it is malformed)."""
