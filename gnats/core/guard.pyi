"""What a connection may do."""

from gnats.core.connection import Connection
from gnats.core.permissions import Permissions

class Guarded(Connection):
    """A connection with permissions; see Client."""

    def set_permissions(self, permissions: Permissions | None) -> None:
        """Permissions from now on, None for all: the client loses the subscriptions it may not have any more,
        and hears of each. What it was allowed to answer is forgotten. Raises MemoryError."""
