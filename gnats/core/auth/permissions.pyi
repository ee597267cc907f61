"""Permissions of a user, compiled: subjects to publish and to subscribe to, and responses."""

from gnats.options.values import auth

class Permissions:
    """A compiled gnats.options.values.auth.Permissions; immutable. compile_permissions() makes it."""

    def __init__(self, source: auth.Permissions) -> None: ...
    @property
    def id(self) -> int:
        """A number that is never used again in this process."""
    @property
    def errors(self) -> tuple[str, ...]:
        """Log texts for entries that were left out because they are not valid."""
    @property
    def restricts_publish(self) -> bool: ...
    @property
    def restricts_delivery(self) -> bool: ...
    @property
    def responses(self) -> bool:
        """Whether the reply subjects of received messages may be published to."""
    @property
    def max_responses(self) -> int:
        """Messages to each reply subject; negative: any number."""
    @property
    def response_expires(self) -> int:
        """Nanoseconds after which a reply subject may not be used any more; negative: never."""
    def publish_allowed(self, subject: bytes, kind: int = 0) -> bool:
        """Return whether this subject may be published to, without regard to replies."""
    def subscribe_allowed(self, subject: bytes, queue: bytes = b"", kind: int = 0) -> bool:
        """Return whether this subject may be subscribed to, in a queue group unless `queue` is empty."""
    def filters(self, subject: bytes, queue: bytes = b"") -> bool:
        """Return whether deliveries to such a subscription must be checked."""
    def delivery_refused(self, subject: bytes, queue: bytes = b"") -> bool:
        """Return whether a delivery of this subject to a subscription in this queue group is denied."""

def compile_permissions(source: auth.Permissions) -> Permissions:
    """Compile permissions. Equal ones share the result for as long as it is in use."""
