"""Pull requests; for tests."""

def read_request(msg: bytes) -> dict[str, object] | str:
    """What a request asks for, or why it is refused."""

class RequestQueue:
    """The queue by itself, of requests that are told apart by their reply."""

    def __init__(self, most: int) -> None: ...
    def add(self, reply: bytes, batch: int, priority: int = 0) -> bool:
        """False when it is full."""
    def pop(self) -> bytes | None:
        """Whom the next message is for."""
    def cycle(self) -> None:
        """The first becomes the last."""
    def remove(self, reply: bytes) -> None:
        """The first request with this reply."""
    def list(self) -> list[tuple[bytes, int]]:
        """[(reply, messages still to come)]."""
