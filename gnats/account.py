"""Accounts: isolated subject spaces, and the clients in them."""

from typing import TYPE_CHECKING

from gnats.core import account
from gnats.reasons import ClosedState

if TYPE_CHECKING:
    from gnats.session import Session

GLOBAL_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"
TRAFFIC = ("in_msgs", "in_bytes", "out_msgs", "out_bytes")
_SLOW = (ClosedState.SLOW_CONSUMER_PENDING_BYTES, ClosedState.SLOW_CONSUMER_WRITE_DEADLINE)


class Account(account.Account):
    """An account; what its messages need is in the base class. Limits are -1 for none."""

    def __init__(self, name: str, max_connections: int = -1) -> None:
        self.name = name
        self.max_connections = max_connections
        self.clients: dict[int, Session] = {}
        self.closed_traffic = dict.fromkeys(TRAFFIC, 0)
        """What connections that have gone had sent and received."""
        self.slow_consumers = 0

    def add_client(self, session: "Session") -> bool:
        """Count a connection in; False when there are as many as there may be."""
        if 0 <= self.max_connections <= len(self.clients):
            return False
        self.clients[session.cid] = session
        return True

    def count_closed(self, session: "Session") -> None:
        """Keep the counters of a connection that has gone."""
        for name in TRAFFIC:
            self.closed_traffic[name] += session.final[name]
        if session.reason in _SLOW:
            self.slow_consumers += 1

    def remove_client(self, session: "Session") -> None:
        """Forget a connection, if it is known."""
        self.clients.pop(session.cid, None)
