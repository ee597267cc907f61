"""Accounts: isolated subject spaces, and the clients in them."""

from typing import TYPE_CHECKING

from gnats.core import account

if TYPE_CHECKING:
    from gnats.session import Session

GLOBAL_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"


class Account(account.Account):
    """An account; what its messages need is in the base class. Limits are -1 for none."""

    def __init__(self, name: str, max_connections: int = -1) -> None:
        self.name = name
        self.max_connections = max_connections
        self.clients: dict[int, Session] = {}

    def add_client(self, session: "Session") -> bool:
        """Count a connection in; False when there are as many as there may be."""
        if 0 <= self.max_connections <= len(self.clients):
            return False
        self.clients[session.cid] = session
        return True

    def remove_client(self, session: "Session") -> None:
        """Forget a connection, if it is known."""
        self.clients.pop(session.cid, None)
