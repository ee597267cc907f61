"""A connection that subscribes and publishes."""

from gnats.core.auth.permissions import Permissions
from gnats.core.net.connection import Connection

class Subscriber(Connection):
    """What messages are routed from and to; see Connection."""

    def set_permissions(self, permissions: Permissions | None) -> None:
        """Permissions from now on, None for all: the client loses the subscriptions it may not have any more,
        and hears of each. What it was allowed to answer is forgotten. Raises MemoryError."""
    def renew_imports(self) -> None:
        """The account imports other streams than before: have the owner look at the subscriptions again."""
    def set_details(self, head: bytes, mid: bytes, tail: bytes) -> None:
        """Set what services learn of this client where an import shares it: members of a JSON object, that
        come before the account (with a comma behind them), before the round trip time and behind the server
        (with one before them). Raises MemoryError."""
    def snapshot(self) -> dict[str, int]:
        """pending_bytes, in_msgs, out_msgs, in_bytes, out_bytes, subscriptions, last_activity (unix ns),
        rtt (ns), stalls."""
    def subscriptions(self) -> list[tuple[bytes, bytes, bytes, int, int]]:
        """(subject, queue, sid, delivered, max) of each subscription."""
