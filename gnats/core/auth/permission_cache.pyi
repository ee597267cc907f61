"""A poller's memory of what permissions said about a subject."""

from gnats.core.auth.permissions import Permissions

class Verdicts:
    """A cache for tests and measurements."""

    def __len__(self) -> int: ...
    def publish(self, permissions: Permissions, subject: bytes, kind: int = 0) -> bool:
        """Permissions.publish_allowed, remembered."""
    def deliver(self, permissions: Permissions, subject: bytes, queue: bytes = b"") -> bool:
        """The opposite of Permissions.delivery_refused, remembered."""
    def measure(self, permissions: Permissions, subjects: list[bytes], rounds: int) -> float:
        """Ask about publishing to all of them, this often; ns for each."""
