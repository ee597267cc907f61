"""The data plane's half of an account: all that routing a message in it needs."""

from weakref import WeakSet

from gnats.core.internal import InternalSubscriber
from gnats.core.subjects.sublist import Sublist
from gnats.core.subjects.transform import SubjectTransform

class Account:
    """An isolated subject space; `sublist` holds its subscriptions."""

    @property
    def sublist(self) -> Sublist: ...
    @property
    def internals(self) -> WeakSet[InternalSubscriber] | None:
        """The server's own subscribers in this account; None before the first."""
    def set_mappings(self, rows: list[tuple[bytes, list[tuple[SubjectTransform, int]]]]) -> None:
        """Replace the mappings of messages published in this account: [(source, [(transform, upto)])].

        The first matching source decides. The first of its destinations with an `upto` above a random number
        from 0 to 99 is used; without one, the message is lost. Raises MemoryError.
        """
    def set_identity(self, name: bytes, info_name: bytes, server_hash: bytes) -> None:
        """Set the account's name, and the one that requests to other accounts carry, a JSON string.

        `server_hash` marks the reply subjects of measured requests. Call it before the account has clients.
        """
    def link_traffic_of(self) -> dict[str, tuple[int, int, int, int]]:
        """Return the messages over links by kind of link, the member of statistics: (msgs received, bytes
        received, msgs sent, bytes sent).

        What has come from leaf nodes is not in it: their connections count it.
        """
    def set_stream_imports(
        self, rows: list[tuple[Account, bytes, bytes, SubjectTransform | None, bool, bool]]
    ) -> None:
        """Replace the stream imports: [(exporter, subject, to, transform, use published, allow trace)].

        Existing subscriptions change when Subscriber.renew_imports() is called for each of the account's
        clients and `internals`. An import that stays keeps its shadows. Raises MemoryError.
        """
    def set_trace_dest(self, subject: bytes, sampling: int) -> None:
        """Trace this percentage of the messages that carry a sampled traceparent, to `subject`; b"": none.

        Raises MemoryError.
        """
    def detach(self) -> None:
        """Undo keep() for all accounts. No account may point into another any more."""

    @property
    def exchanges(self) -> bool:
        """Whether other accounts may point into this one.

        They may while it has subscriptions or stream imports, or expects or waits for responses.
        """

    def keep(self, other: Account) -> None:
        """Have both accounts keep each other alive, since each may come to point into the other."""
    def responder_subscription(self) -> tuple[bytes, bytes, bytes, int, int] | None:
        """Return (subject, queue, sid, delivered, max) of the subscription to responses.

        None before the first request.
        """
    is_system: bool
    """Whether this is the system account, whose clients may publish to Raft groups."""
    @property
    def pending_responses(self) -> int:
        """The number of responses that services of this account still have to send."""
    @property
    def pending_requests(self) -> int:
        """The number of responses that requesters of this account wait for."""
