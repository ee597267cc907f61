"""Exported and imported services, for the control plane. Closing or collecting one undoes it."""

from gnats.core.accounts.account import Account
from gnats.core.subjects.transform import SubjectTransform

class ExportedService:
    """A service that an account exports.

    `response_type` is "singleton", "stream" or "chunked"; `threshold` is the seconds to wait for a response.
    """

    threshold: float
    def __init__(self, account: Account, response_type: str, threshold: float) -> None: ...
    @property
    def account(self) -> Account: ...
    @property
    def response_type(self) -> str: ...
    @property
    def id(self) -> int:
        """The export's number in events."""
    def measure(self, percent: int, by_header: bool) -> None:
        """Measure this percentage of the requests, and with `by_header` those whose headers ask for it."""
    def close(self) -> None:
        """Expect no responses to new requests. Those that are expected may still come. Idempotent."""
    @property
    def closed(self) -> bool: ...
    @property
    def in_use(self) -> bool:
        """Whether imports, or expected responses, refer to it."""

    def allow_trace(self, allow: bool) -> None:
        """Set whether traces of requests go on into the serving account."""
    def pending(self) -> int:
        """Return the number of expected responses."""
    def check_expired_responses(self) -> tuple[float | None, list[bytes]]:
        """Drop the responses that have not come within `threshold`.

        Return the seconds until the next one expires (None: none is expected; call again after EV_RESPONSES),
        and the measurements of those dropped, as bytes like an EV_LATENCY's data.
        """

class ImportedService:
    """An import of a service: requests to `subject` in `account` go to `to` in the exporting account.

    With a transform, its result replaces `to`; with `use_published`, requests keep their subject. It handles
    requests until close(). Raises ValueError for an invalid subject, MemoryError.
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
        """Return (subject, queue, sid, delivered, max), like a row of Client.subscriptions()."""
    def close(self) -> None:
        """Handle no more requests. Idempotent."""
