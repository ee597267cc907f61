"""Accounts (accounts.go): isolated subject spaces, and the clients in them."""

import itertools
from typing import TYPE_CHECKING, Protocol

from gnats.clock import monotonic, time_ns
from gnats.connection.closed_state import ClosedState
from gnats.core.accounts import account
from gnats.core.accounts.listing import total
from gnats.options.values.accounts import AccountLimits

if TYPE_CHECKING:
    from gnats.accounts.internal_client import InternalClient
    from gnats.core.client import Client
    from gnats.core.routing.services import ExportedService, ImportedService
    from gnats.options.values.limits import Tiers

NO_LIMIT = -1
MANY_CLIENTS = 1000
COUNT_INTERVAL = 0.1
"""Seconds between two counts of the traffic of many clients."""

ImportKey = tuple[str, ...]
"""The names and subjects that make an import what it is."""

TRAFFIC = ("in_msgs", "in_bytes", "out_msgs", "out_bytes")
_SLOW = (ClosedState.SLOW_CONSUMER_PENDING_BYTES, ClosedState.SLOW_CONSUMER_WRITE_DEADLINE)


class Member(Protocol):
    """A client as its account sees it: a Session."""

    client: "Client | None"

    @property
    def cid(self) -> int: ...
    @property
    def reason(self) -> ClosedState | None: ...

    def snapshot(self) -> dict[str, int]:
        """The client's counters."""

    def share_details(self) -> None:
        """Have services, where an import shares it, told of the client."""


def lowest(*limits: int) -> int:
    """The lowest of several limits, of which negative ones are none."""
    return min((limit for limit in limits if limit >= 0), default=NO_LIMIT)


class Account(account.Account):
    """An account; what its messages need is in the base class. Limits are -1 for none."""

    def __init__(self, name: str, max_connections: int = NO_LIMIT) -> None:
        self.name = name
        self.name_tag = name
        self.updated = time_ns()
        self.max_connections = max_connections
        self.max_leafnodes = self.max_subscriptions = self.max_payload = NO_LIMIT
        self.clients: dict[int, Member] = {}
        self.internal: InternalClient | None = None
        """The server's client in it, when it has needed one."""
        self.internal_cid = 0
        """Its connection id, 0 while nobody has asked; what the account itself is subscribed to is its."""
        self.services: dict[str, ExportedService] = {}
        """What it exports, by subject."""
        self.service_imports: dict[ImportKey, ImportedService] = {}
        self.stream_imports: set[ImportKey] = set()
        self.jetstream_limits: Tiers | None = None
        """What its streams may use, by tier; None: it has no JetStream."""
        self.shares_details = False
        """Services that it imports are told who its clients are."""
        self._sids = itertools.count(2)
        self.closed_traffic = dict.fromkeys(TRAFFIC, 0)
        """What connections that have gone had sent and received."""
        self.slow_consumers = 0
        self._counted: dict[str, int] = {}
        self._counted_at = -COUNT_INTERVAL

    def own_subscriptions(self) -> list[tuple[bytes, bytes, bytes, int, int]]:
        """Those of its service imports, and to responses, as Client.subscriptions() has them."""
        responder = self.responder_subscription()
        return [service.subscription() for service in self.service_imports.values()] + (
            [responder] if responder else []
        )

    @property
    def label(self) -> str:
        """The name as the log has it."""
        return self.name if self.name_tag == self.name else f"{self.name}/{self.name_tag}"

    def next_sid(self) -> bytes:
        """A sid for a subscription of the account itself."""
        return b"%d" % next(self._sids)

    def set_limits(self, limits: AccountLimits) -> None:
        """Limits for those that connect from now on."""
        self.max_connections = limits.max_connections
        self.max_leafnodes = limits.max_leafnodes
        self.max_subscriptions = limits.max_subscriptions
        self.max_payload = limits.max_payload

    def add_client(self, session: Member) -> bool:
        """Count a connection in; False when there are as many as there may be."""
        if 0 <= self.max_connections <= len(self.clients):
            return False
        counts = session.snapshot()
        for name in TRAFFIC:  # what it has done is the account's that it comes from
            self.closed_traffic[name] -= counts[name]
        self.clients[session.cid] = session
        return True

    def remove_client(self, session: Member) -> bool:
        """Count a connection out, if it was in; whether it was."""
        if self.clients.pop(session.cid, None) is None:
            return False
        counts = session.snapshot()
        for name in TRAFFIC:
            self.closed_traffic[name] += counts[name]
        self.slow_consumers += session.reason in _SLOW
        return True

    def traffic(self) -> dict[str, int]:
        """What the clients have sent and received so far: in_msgs, in_bytes, out_msgs and out_bytes.

        Many clients are not counted again for each that comes or goes: their figures may be a bit old.
        """
        if len(self.clients) < MANY_CLIENTS:
            return self._count_traffic()
        now = monotonic()
        if now - self._counted_at > COUNT_INTERVAL:
            self._counted, self._counted_at = self._count_traffic(), now
        return self._counted

    def _count_traffic(self) -> dict[str, int]:
        clients = [session.client for session in self.clients.values() if session.client]
        return {name: self.closed_traffic[name] + total(clients, name) for name in TRAFFIC}

    def statz(self) -> dict[str, object]:
        """Connections, subscriptions and traffic (AccountStat in events.go)."""
        traffic, none = self.traffic(), {"msgs": 0, "bytes": 0}
        remote = {"gateways": none, "routes": none, "leafs": none}
        return {
            "acc": self.name,
            "name": self.name_tag,
            "conns": len(self.clients),
            "leafnodes": 0,
            "total_conns": len(self.clients),
            "num_subscriptions": self.sublist.count(),
            "sent": {"msgs": traffic["out_msgs"], "bytes": traffic["out_bytes"]} | remote,
            "received": {"msgs": traffic["in_msgs"], "bytes": traffic["in_bytes"]} | remote,
            "slow_consumers": self.slow_consumers,
        }
