"""A connection that subscribes and publishes."""

from gnats.core.auth.permissions import Permissions
from gnats.core.net.connection import Connection

class Subscriber(Connection):
    """A connection that subscribes and publishes. Python calls its methods on the control loop only."""

    def set_permissions(self, permissions: Permissions | None) -> None:
        """Replace the permissions; None allows everything.

        The owner removes each subscription that is not allowed any more, and sends the client an -ERR for it.
        It also forgets the replies that the client was allowed to publish to. Raises MemoryError.
        """
    def renew_imports(self) -> None:
        """Have the owner renew its shadow subscriptions: the account's stream imports have changed."""
    def set_details(self, head: bytes, mid: bytes, tail: bytes, server: bytes = b"") -> None:
        """Set the details of this client that services get where an import shares them.

        Each argument holds members of a JSON object. `head`, with a comma at its end, goes before the
        account; `mid` before the round trip time and `tail` after what is said of this server begin with a
        comma; so does `server`, which names another server in its place. Raises MemoryError.
        """
    def snapshot(self) -> dict[str, int]:
        """Return counters for monitoring, each read by itself.

        pending_bytes, in_msgs, out_msgs, in_bytes, out_bytes, subscriptions, last_activity (unix ns), rtt
        (ns; 0: not measured), stalls, slow, late (1 from a missed write deadline until the peer has caught
        up), gate (bytes pending beyond which producers are stalled).
        """
    def subscriptions(self) -> list[tuple[bytes, bytes, bytes, int, int]]:
        """Return (subject, queue, sid, delivered, max) of each subscription."""
