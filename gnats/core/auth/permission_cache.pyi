"""A poller's cache of permission checks."""

from gnats.core.auth.permissions import Permissions

class Verdicts:
    """A cache for tests and measurements."""

    def __len__(self) -> int: ...
    def publish(self, permissions: Permissions, subject: bytes, kind: int = 0) -> bool:
        """Return Permissions.publish_allowed(), cached."""
    def deliver(self, permissions: Permissions, subject: bytes, queue: bytes = b"") -> bool:
        """Return the opposite of Permissions.delivery_refused(), cached."""
    def measure(self, permissions: Permissions, subjects: list[bytes], rounds: int) -> float:
        """Check `rounds` times whether each subject may be published to. Return the ns of one check."""
