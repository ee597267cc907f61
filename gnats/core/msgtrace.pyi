"""What is noted of messages that are traced."""

from gnats.core.guard import Guarded

class Traced(Guarded):
    """A connection whose messages may be traced; see Client."""
