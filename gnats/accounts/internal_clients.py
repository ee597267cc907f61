"""The server's own clients, by account (internalClient in accounts.go)."""

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gnats.accounts.internal_client import InternalClient
from gnats.accounts.remote_requests import with_requester
from gnats.connection.log_lines import describe
from gnats.core.net.log_records import LogCode
from gnats.core.runtime.inbox import (
    EV_CLOSED,
    EV_LOG,
    EV_MSG,
    PRODUCER_CLIENT,
    PRODUCER_CLUSTER,
    PRODUCER_LEAF,
)
from gnats.core.runtime.kinds import ACCOUNT, JETSTREAM, SYSTEM

if TYPE_CHECKING:
    from gnats.accounts.account import Account
    from gnats.core.net.connection import Connection
    from gnats.core.poller import Poller
    from gnats.core.runtime.state import ServerState
    from gnats.log.logger import Logger
    from gnats.runtime.dispatch import EventTable


class InternalClients:
    """The server's own clients. Also gives out the connection ids of all connections.

    `system` is the system account or None. `gone` is called when the connection of a client has gone. Set
    `poller` before creating clients.
    """

    def __init__(
        self,
        state: "ServerState",
        log: "Logger",
        system: "Account | None",
        gone: Callable[[], object],
    ) -> None:
        self.poller: Poller | None = None
        self.leaf_names_requesters: Callable[[int], bool] = lambda cid: False
        """Whether the headers of what comes over a leaf node say who has sent it. The server sets it."""
        self._state = state
        self._log = log
        self._system = system
        self._gone = gone
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

    def serve(self, events: "EventTable") -> None:
        """Handle the events about these clients: messages, closed connections, and a lack of memory."""
        kinds = (SYSTEM, JETSTREAM, ACCOUNT)
        events.on(EV_MSG, self._on_message, kinds)
        events.on(EV_CLOSED, self._on_closed, kinds)
        events.on(EV_LOG, self._on_log, kinds)

    def _on_message(self, source: "Connection | None", producer: int, what: int, data: object) -> None:
        """Give a message to the client that it was delivered to.

        In the system account that is no message of another of these clients, nor its own: a requester could
        let an answer go to a subject that it may not publish to itself.
        """
        if source and isinstance(data, tuple) and (client := self._clients.get(source.cid)):
            if client.kind == SYSTEM and (other := self._clients.get(producer)) and other.kind == SYSTEM:
                return
            names = what == PRODUCER_CLUSTER or (
                what == PRODUCER_LEAF and self.leaf_names_requesters(producer)
            )
            client.process_message(producer, what != PRODUCER_CLIENT, with_requester(data) if names else data)

    def _on_closed(self, source: "Connection | None", reason: int, b: int, data: object) -> None:
        """Forget a client whose connection was closed."""
        if source:
            self._clients.pop(source.cid, None)
            self._gone()

    def _on_log(self, source: object, code: int, b: int, data: object) -> None:
        if code == LogCode.LOG_OUT_OF_MEMORY and isinstance(data, bytes):
            self._log.log(*describe(source, code, b, data))

    def close(self) -> None:
        """Close all clients."""
        for client in self._clients.values():
            client.close()
