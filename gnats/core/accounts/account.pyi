from gnats.core.subjects.sublist import Sublist
from gnats.core.subjects.transform import SubjectTransform

class Account:
    @property
    def sublist(self) -> Sublist: ...
    def set_mappings(self, rows: list[tuple[bytes, list[tuple[SubjectTransform, int]]]]) -> None:
        """What messages published in this account from now on are mapped by: each source with its
        destinations.

        The first source that matches counts; of its destinations the first whose number is over a random one
        of 0 to 99, and without such a one the message is lost. Raises MemoryError.
        """
    def set_identity(self, name: bytes, server: bytes, server_hash: bytes) -> None:
        """What requests to other accounts say about this one: its name and the server's, in JSON with quotes;
        the server's hash marks the subjects of responses that are measured. Before the account has
        clients."""
    def set_stream_imports(
        self, rows: list[tuple[Account, bytes, bytes, SubjectTransform | None, bool, bool]]
    ) -> None:
        """What subscriptions in this account hear of others: (exporter, subject, to, transform, use
        published) of each.

        Those of connected clients change when each is told (Client.renew_imports). Raises MemoryError.
        """
    def set_trace_dest(self, subject: bytes, sampling: int) -> None:
        """Trace this percentage of the messages that carry a sampled traceparent, to a subject; b"" for none.

        Raises MemoryError.
        """
    def detach(self) -> None:
        """Keep no other accounts any more, and be kept by none: nothing of the one points into the other."""

    @property
    def exchanges(self) -> bool:
        """Whether somebody subscribes here, or it imports streams, or a response is expected or waited for:
        then others may point to it."""

    def keep(self, other: Account) -> None:
        """Keep another account, and have it keep this one: each may come to point into the other."""
    def responder_subscription(self) -> tuple[bytes, bytes, bytes, int, int] | None:
        """(subject, queue, sid, delivered, max) of what takes the answers; None before the first request."""
    is_system: bool
    """Whether this is the system account, whose clients may publish to Raft groups."""
    @property
    def pending_responses(self) -> int:
        """Responses that are expected of this account."""
    @property
    def pending_requests(self) -> int:
        """Responses that this account waits for."""
