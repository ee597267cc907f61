"""What a user may publish, subscribe to and be sent, compiled."""

from gnats.options.values import auth

class Permissions:
    """A gnats.options.values.auth.Permissions, compiled; immutable. compile_permissions makes them."""

    def __init__(self, source: auth.Permissions) -> None: ...
    @property
    def id(self) -> int:
        """Of no other one in this process, ever."""
    @property
    def errors(self) -> tuple[str, ...]:
        """The entries that were left out because they are not valid, as the log words them."""
    @property
    def restricts_publish(self) -> bool: ...
    @property
    def restricts_delivery(self) -> bool: ...
    @property
    def responses(self) -> bool:
        """The reply subjects of received messages may be published to."""
    @property
    def max_responses(self) -> int:
        """To each reply subject; negative: any number."""
    @property
    def response_expires(self) -> int:
        """Nanoseconds; negative: never."""
    def publish_allowed(self, subject: bytes, kind: int = 0) -> bool:
        """May this subject be published to, replies to received messages left aside?"""
    def subscribe_allowed(self, subject: bytes, queue: bytes = b"", kind: int = 0) -> bool:
        """May this be subscribed to, in a queue group unless `queue` is empty?"""
    def filters(self, subject: bytes, queue: bytes = b"") -> bool:
        """Are deliveries checked because of such a subscription?"""
    def delivery_refused(self, subject: bytes, queue: bytes = b"") -> bool:
        """Is a message to this subject kept from a subscription of this queue group?"""

def compile_permissions(source: auth.Permissions) -> Permissions:
    """The compiled form; equal ones share it for as long as one is in use."""
