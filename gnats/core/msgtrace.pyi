"""What is noted of messages that are traced."""

from gnats.core.guard import Guarded

class Traced(Guarded):
    """A connection whose messages may be traced; see Client."""

def fields(header: bytes) -> list[tuple[bytes, bytes]]:
    """The fields of a header block that have a value, in order, as traces have them: (key, value)."""
