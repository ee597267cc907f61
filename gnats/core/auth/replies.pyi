"""Reply subjects that a client was sent and may therefore publish to."""

class Replies:
    """A table for tests; `now` and `expires` in ns, negative limits mean none."""

    def __init__(self, most: int, expires: int) -> None: ...
    def __len__(self) -> int: ...
    def note(self, subject: bytes, now: int) -> None:
        """Note the delivery of a message with this reply subject."""
    def use(self, subject: bytes, now: int) -> bool:
        """Return whether it may be published to; True uses up one response."""
