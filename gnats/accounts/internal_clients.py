"""The server's own clients, by account (internalClient in accounts.go)."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gnats.accounts.internal_client import InternalClient, MessageParts
from gnats.core.runtime.kinds import ACCOUNT, SYSTEM

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.core.poller import Poller
    from gnats.core.runtime.state import ServerState
    from gnats.log.logger import Logger


class InternalClients:
    """The server's own clients. Also gives out the connection ids of all connections.

    `system` is the system account or None. Set `poller` before creating clients.
    """

    def __init__(self, state: "ServerState", log: "Logger", system: "Account | None") -> None:
        self.poller: Poller | None = None
        self._state = state
        self._log = log
        self._system = system
        self._cids = itertools.count(1)
        self._clients: dict[int, InternalClient] = {}

    def __iter__(self) -> "Iterator[InternalClient]":
        return iter(self._clients.values())

    def __len__(self) -> int:
        return len(self._clients)

    def next_cid(self) -> int:
        """Return an unused connection id."""
        return next(self._cids)

    def cid_of(self, account: "Account") -> int:
        """Return the connection id of the client that of() returns, without creating the client."""
        if not account.internal_cid:
            account.internal_cid = self.next_cid()
        return account.internal_cid

    def new(self, account: "Account", cid: int = 0) -> InternalClient:
        """Create a client in an account; `cid` 0 takes a new connection id (internalClient)."""
        assert self.poller is not None
        cid = cid or self.next_cid()
        kind = SYSTEM if account is self._system else ACCOUNT
        client = self._clients[cid] = InternalClient(account, cid, self.poller, self._state, kind, self._log)
        return client

    def of(self, account: "Account") -> InternalClient:
        """Return the account's lasting client; create it at the first call."""
        if account.internal is None:
            account.internal = self.new(account, self.cid_of(account))
        return account.internal

    def process_message(self, cid: int, producer: int, message: MessageParts) -> None:
        """Give the message of an EV_MSG to the client with that connection id."""
        if client := self._clients.get(cid):
            client.process_message(producer, message)

    def closed(self, cid: int) -> None:
        """Forget a client whose connection was closed."""
        self._clients.pop(cid, None)

    def close(self) -> None:
        """Close all clients."""
        for client in self._clients.values():
            client.close()
