"""Pull requests; for tests."""

def read_request(msg: bytes) -> dict[str, object] | str:
    """Decode a pull request; return its fields, or the text of its refusal."""

class RequestQueue:
    """The queue alone. A request is identified by its reply subject."""

    def __init__(self, most: int) -> None: ...
    def add(
        self,
        reply: bytes,
        batch: int,
        priority: int = 0,
        *,
        expires: int = 0,
        heartbeat: int = 0,
        now: int = 1,
    ) -> bool:
        """Queue a request. False when the queue is full."""
    @property
    def due(self) -> int:
        """The time of the next expiry or heartbeat, or an earlier one; 0: none."""
    def pop(self) -> bytes | None:
        """Take one message off the request that is next, and return its reply; None when there is none."""
    def cycle(self) -> None:
        """Make the first request the last."""
    def remove(self, reply: bytes) -> None:
        """Remove the first request with this reply."""
    def list(self) -> list[tuple[bytes, int]]:
        """Return [(reply, messages still to come)]."""
