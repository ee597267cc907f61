"""Acknowledgements: reply subjects, and what is answered on them; for tests."""

def read_reply(subject: bytes) -> tuple[int, int, int, int, int] | None:
    """(stream seq, consumer seq, deliveries, ts, pending) of a reply subject, None when it is none."""

def write_reply(prefix: bytes, sseq: int, dseq: int, dc: int, ts: int, pending: int) -> bytes:
    """The reply subject for these numbers. Raises MemoryError."""

def read_ack(payload: bytes) -> tuple[str, bytes]:
    """What a payload says, and what follows the verb."""

def read_duration(text: bytes) -> int | None:
    """Nanoseconds, None when it is no duration."""

def read_nak(rest: bytes) -> tuple[int | None, bool]:
    """(delay in ns or None, whether it could not be read) of what follows -NAK."""
