"""What a consumer has delivered and not got back; for tests."""

class PendingTable:
    """The structure by itself."""

    def track(self, seq: int, dseq: int, ts: int, deadline: int) -> None:
        """A delivery."""
    def untrack(self, seq: int) -> None:
        """No longer pending, if it was."""
    def set_deadline(self, seq: int, deadline: int) -> None:
        """Of a pending one."""
    def forget(self, seq: int) -> None:
        """Everything about it."""
    def rdc(self, seq: int) -> int:
        """Redeliveries."""
    def set_rdc(self, seq: int, rdc: int) -> None:
        """Set the redeliveries."""
    def enqueue(self, seq: int) -> None:
        """To the end of the redelivery queue."""
    def dequeue(self, seq: int) -> None:
        """Out of the redelivery queue, if it is in it."""
    def pop(self) -> int:
        """The first of the redelivery queue, 0 when it is empty."""
    def earliest(self) -> int | None:
        """The first deadline."""
    def state(self) -> tuple[list[tuple[int, int, int, int]], list[int], int]:
        """[(seq, dseq, ts, deadline)] in order, the redelivery queue, and how many have an rdc."""
