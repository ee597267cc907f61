"""The reply subjects that a client was sent and may therefore publish to."""

class Replies:
    """A table for tests; `now` and `expires` in ns, negative limits mean none."""

    def __init__(self, most: int, expires: int) -> None: ...
    def __len__(self) -> int: ...
    def note(self, subject: bytes, now: int) -> None:
        """A message with this reply subject is delivered."""
    def use(self, subject: bytes, now: int) -> bool:
        """May it be published to? True uses up one response."""
