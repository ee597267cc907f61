"""Pull requests; for tests."""

def read_request(msg: bytes) -> dict[str, object] | str:
    """What a request asks for, or why it is refused."""

class RequestQueue:
    """The queue by itself, of requests that are told apart by their reply."""

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
        """False when it is full."""
    @property
    def due(self) -> int:
        """When something is due, or before; 0: nothing is."""
    def pop(self) -> bytes | None:
        """Whom the next message is for."""
    def cycle(self) -> None:
        """The first becomes the last."""
    def remove(self, reply: bytes) -> None:
        """The first request with this reply."""
    def list(self) -> list[tuple[bytes, int]]:
        """[(reply, messages still to come)]."""
