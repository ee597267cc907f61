"""The delivered, not acknowledged messages of a consumer; for tests."""

class PendingTable:
    """The table alone. Times are ns since 1970."""

    def track(self, seq: int, dseq: int, ts: int, deadline: int) -> None:
        """Note a delivery."""
    def untrack(self, seq: int) -> None:
        """Make a message no longer pending."""
    def set_deadline(self, seq: int, deadline: int) -> None:
        """Set when to deliver a pending message again."""
    def forget(self, seq: int) -> None:
        """Remove a message from the table and the queue."""
    def rdc(self, seq: int) -> int:
        """Return the number of redeliveries."""
    def set_rdc(self, seq: int, rdc: int) -> None:
        """Set the number of redeliveries."""
    def enqueue(self, seq: int) -> None:
        """Add a message to the end of the redelivery queue."""
    def dequeue(self, seq: int) -> None:
        """Remove a message from the redelivery queue, if it is queued."""
    def pop(self) -> int:
        """Remove and return the first of the redelivery queue, 0 when it is empty."""
    def earliest(self) -> int | None:
        """Return the first deadline."""
    def state(self) -> tuple[list[tuple[int, int, int, int]], list[int], int]:
        """Return [(seq, dseq, ts, deadline)] in order, the redelivery queue, the messages with an rdc."""
