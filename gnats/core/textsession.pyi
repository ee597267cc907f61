"""A session in NATS' text protocol."""

from gnats.core.accounts.subscriber import Subscriber

class TextSession(Subscriber):
    """A connection whose peer speaks NATS' text protocol; see Connection."""

    def start(self, greeting: bytes, *, expect_connect: bool, auth_timeout: float = 0.0) -> None:
        """Hand the connection to its poller: send `greeting`, then read.

        With `expect_connect`, a verb before CONNECT is an authorization violation, and the connection is
        closed when no CONNECT has come after `auth_timeout` seconds (0: never).
        """
    def refuse(self, greeting: bytes, reason: int, err: str) -> None:
        """Send `greeting` and `-ERR 'err'`, and close without reading anything."""
    def resume(self) -> None:
        """Go on parsing after a punted INFO has been answered."""
    def close_connection(self, reason: int, err: str | None = None) -> None:
        """Send `-ERR 'err'` if given and close; EV_CLOSED follows once the poller has done it. Idempotent."""
