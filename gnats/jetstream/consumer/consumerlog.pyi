"""The log of a consumer; for tests."""

from gnats.jetstream.consumer.consumer import Consumer

def apply_entry(
    o: Consumer,
    op: str,
    sseq: int,
    *,
    dseq: int = 0,
    dc: int = 0,
    ts: int = 0,
    all: bool = False,
    floor: tuple[int, int] = (0, 0),
) -> tuple[str, list[int]]:
    """Apply one entry; return the outcome and the sequences that it acknowledges.

    `op` is "delivered", "waits", "returned", "acked", "forgotten", "moved" or "reset".
    """
