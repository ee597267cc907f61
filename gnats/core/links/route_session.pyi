"""The session of a route, as the control loop uses it."""

from gnats.core.accounts.registry import AccountRegistry
from gnats.core.accounts.subscriber import Subscriber
from gnats.core.auth.permissions import Permissions
from gnats.core.poller import Poller
from gnats.core.runtime.state import ServerState

class RouteSession(Subscriber):
    """A connection to another server of the cluster; see Connection."""

    def __init__(
        self,
        kind: int,
        fd: int,
        cid: int,
        poller: Poller,
        state: ServerState,
        registry: AccountRegistry,
        *,
        max_control_line: int = ...,
        max_pending: int = ...,
        write_deadline: float = ...,
        retries: bool = ...,
        ping_interval: float = ...,
        ping_max: int = ...,
    ) -> None: ...
    def start(self, greeting: bytes, *, expect_connect: bool, auth_timeout: float = 0.0) -> None: ...
    def accept_connect(self) -> None: ...
    def resume(self) -> None: ...
    def join(
        self,
        *,
        greeting: bytes = b"",
        pool_index: int,
        pool_size: int,
        account: bytes = b"",
        pinned: tuple[bytes, ...] = (),
        headers: bool,
        permissions: Permissions | None = None,
        measure: bool = False,
    ) -> None: ...
    def refuse(self, info: bytes, reason: int, err: str) -> None: ...
    def close_connection(self, reason: int, err: str | None = None) -> None: ...
