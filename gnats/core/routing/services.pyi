"""Exported and imported services as the control plane handles them. Both are undone when they are closed or
collected."""

from gnats.core.accounts.account import Account
from gnats.core.subjects.transform import SubjectTransform

class ExportedService:
    """A service that an account offers. `response_type` is "singleton", "stream" or "chunked"; the threshold,
    in seconds, is how long its responses are waited for."""

    threshold: float
    def __init__(self, account: Account, response_type: str, threshold: float) -> None: ...
    @property
    def account(self) -> Account: ...
    @property
    def response_type(self) -> str: ...
    @property
    def id(self) -> int:
        """Its number in the events about it."""
    def measure(self, percent: int, by_header: bool) -> None:
        """Measure this part of the requests, and with `by_header` those whose headers ask for it."""
    def close(self) -> None:
        """Take no more requests; responses that are expected may still come. Idempotent."""
    @property
    def closed(self) -> bool: ...
    @property
    def in_use(self) -> bool:
        """Whether imports, or responses that are expected, hold it."""

    def allow_trace(self, allow: bool) -> None:
        """Whether traces of requests tell what becomes of them in the account that serves them."""
    def pending(self) -> int:
        """Responses that are expected."""
    def check_expired_responses(self) -> tuple[float | None, list[bytes]]:
        """Drop the responses that have not come in time: seconds until it is worth asking again, None for
        when the next one is expected; and the measurements among them, as EV_LATENCY has them."""

class ImportedService:
    """A service that an account takes from another one: requests to `subject` go to `to` there.

    With a transform `to` is what it makes of the subject, with `use_published` the subject itself. Requests
    are taken until close(). Raises ValueError for an invalid subject, MemoryError.
    """

    share: bool
    invalid: bool
    def __init__(
        self,
        account: Account,
        export: ExportedService,
        subject: bytes,
        to: bytes,
        transform: SubjectTransform | None,
        *,
        use_published: bool,
        share: bool,
        to_system: bool,
        sid: bytes,
    ) -> None: ...
    @property
    def account(self) -> Account: ...
    @property
    def export(self) -> ExportedService: ...
    def subscription(self) -> tuple[bytes, bytes, bytes, int, int]:
        """(subject, queue, sid, delivered, max), as Client.subscriptions() has them."""
    def close(self) -> None:
        """Take no more requests. Idempotent."""
