"""Accounts (accounts.go): isolated subject spaces with their clients, limits and counters."""

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from gnats.clock import monotonic, time_ns
from gnats.connection.closed_state import ClosedState
from gnats.core.accounts import account
from gnats.core.accounts.listing import total
from gnats.options.values.accounts import AccountLimits

if TYPE_CHECKING:
    from gnats.accounts.internal_client import InternalClient
    from gnats.core.accounts.subscriber import Subscriber
    from gnats.core.client import Client
    from gnats.core.routing.services import ExportedService, ImportedService
    from gnats.options.values.limits import Tiers
    from gnats.options.values.mappings import Row

NO_LIMIT = -1
MANY_CLIENTS = 1000
COUNT_INTERVAL = 0.1
"""Seconds for which an account with MANY_CLIENTS clients keeps the last count of its traffic."""

ImportKey = tuple[str, ...]
"""Identifies an import: account names and subjects (the `key` of a ServiceRoute or StreamRoute)."""

TRAFFIC = ("in_msgs", "in_bytes", "out_msgs", "out_bytes", "slow")
"""What an account counts of its connections; `slow`: how often a slow consumer was kept."""
LINK_TRAFFIC = TRAFFIC[:4]
"""What it counts of links, in the order of link_traffic_of()."""
_NOT_SENT = frozenset(("in_msgs", "in_bytes", "slow"))
"""What a leaf node connection counts for its account, whose data plane counts what is sent to leaf nodes."""
_SLOW = (ClosedState.SLOW_CONSUMER_PENDING_BYTES, ClosedState.SLOW_CONSUMER_WRITE_DEADLINE)


class Member(Protocol):
    """The part of a Session that its account uses."""

    client: "Client | None"

    @property
    def cid(self) -> int: ...
    @property
    def reason(self) -> ClosedState | None: ...

    def snapshot(self) -> dict[str, int]:
        """Return the client's counters (see Session.snapshot)."""

    def share_details(self) -> None:
        """Give the data plane the client's details, for services imported with `share`."""


def lowest(*limits: int) -> int:
    """Return the lowest limit; a negative one means unlimited. NO_LIMIT when all are negative."""
    return min((limit for limit in limits if limit >= 0), default=NO_LIMIT)


class Account(account.Account):
    """An account, used in the loop's thread; the base class routes its messages. -1: no limit."""

    def __init__(self, name: str, max_connections: int = NO_LIMIT) -> None:
        self.name = name
        self.name_tag = name
        self.updated = time_ns()
        self.max_connections = max_connections
        self.max_leafnodes = self.max_subscriptions = self.max_payload = NO_LIMIT
        self.clients: dict[int, Member] = {}
        self.clients_elsewhere: dict[str, int] = {}
        """The number of its clients on other servers that have any, by server id."""
        self.leafs: dict[int, Member] = {}
        """Its connections to other servers: leaf nodes and hubs."""
        self.leafs_elsewhere: dict[str, int] = {}
        """As clients_elsewhere, of leaf node connections."""
        self.leaf_clusters: Counter[str] = Counter()
        """The clusters of its leaf nodes, "" among them, with their numbers of connections."""
        self.loop_subject = b""
        """Interest in it that a leaf node sends has gone round in a circle; empty before the first one."""
        self.mappings: list[Row] = []
        self.mapped: tuple[bytes, ...] = ()
        """The subjects of its mappings."""
        self.internal: InternalClient | None = None
        """The server's own client in this account, or None until one is needed."""
        self.internal_cid = 0
        """The connection id of `internal`, or 0 until it is needed. Monitoring lists the account's own
        subscriptions under it."""
        self.services: dict[str, ExportedService] = {}
        """Exported services, by subject."""
        self.service_imports: dict[ImportKey, ImportedService] = {}
        self.stream_imports: set[ImportKey] = set()
        self.jetstream_limits: Tiers | None = None
        """Limits of its streams, by tier; None: the account has no JetStream."""
        self.shares_details = False
        """True if an imported service receives the details of this account's clients."""
        self._sids = itertools.count(2)
        self.closed_traffic = dict.fromkeys(TRAFFIC, 0)
        """Traffic of the connections that left, less the traffic that connections brought from another
        account. With the counters of the present connections and of links, it is the account's traffic."""
        self.closed_leaf_traffic = dict.fromkeys(TRAFFIC, 0)
        """The part of it that leaf node connections brought; nothing that was sent to them."""
        self._closed_as_slow = 0
        self._counted: dict[str, int] = {}
        self._counted_at = -COUNT_INTERVAL

    def own_subscriptions(self) -> list[tuple[bytes, bytes, bytes, int, int]]:
        """Return the subscriptions of its service imports and to responses, as in Client.subscriptions()."""
        responder = self.responder_subscription()
        return [service.subscription() for service in self.service_imports.values()] + (
            [responder] if responder else []
        )

    @property
    def label(self) -> str:
        """The account's name in the log."""
        return self.name if self.name_tag == self.name else f"{self.name}/{self.name_tag}"

    def next_sid(self) -> bytes:
        """Return a new sid for a subscription of the account itself."""
        return b"%d" % next(self._sids)

    def set_limits(self, limits: AccountLimits) -> None:
        """Set the limits for clients that connect from now on."""
        self.max_connections = limits.max_connections
        self.max_leafnodes = limits.max_leafnodes
        self.max_subscriptions = limits.max_subscriptions
        self.max_payload = limits.max_payload

    def set_mappings(self, rows: "list[Row]") -> None:
        super().set_mappings(rows)
        self.mappings = rows
        self.mapped = tuple(source for source, _ in rows)

    def add_client(self, session: Member) -> bool:
        """Add a connection. Return False when the account has max_connections already, on all servers."""
        if 0 <= self.max_connections <= len(self.clients) + self.num_elsewhere:
            return False
        counts = session.snapshot()
        for name in TRAFFIC:  # its earlier traffic belongs to the account that it comes from
            self.closed_traffic[name] -= counts[name]
        self.clients[session.cid] = session
        return True

    def add_leaf(self, session: Member) -> bool:
        """Add a connection to another server. Return False when there are max_leafnodes already."""
        if 0 <= self.max_leafnodes <= len(self.leafs) + sum(self.leafs_elsewhere.values()):
            return False
        self.leafs[session.cid] = session
        return True

    def remove_leaf(self, session: Member) -> bool:
        """Remove a connection to another server. Return False when it was not in the account."""
        if self.leafs.pop(session.cid, None) is None:
            return False
        counts = session.snapshot()
        for name in _NOT_SENT:
            self.closed_traffic[name] += counts[name]
            self.closed_leaf_traffic[name] += counts[name]
        self._closed_as_slow += session.reason in _SLOW
        return True

    def remove_client(self, session: Member) -> bool:
        """Remove a connection. Return False when it was not in the account."""
        if self.clients.pop(session.cid, None) is None:
            return False
        counts = session.snapshot()
        for name in TRAFFIC:
            self.closed_traffic[name] += counts[name]
        self._closed_as_slow += session.reason in _SLOW
        return True

    @property
    def num_elsewhere(self) -> int:
        """The number of its clients on other servers."""
        return sum(self.clients_elsewhere.values())

    @property
    def over_maximum(self) -> bool:
        """Whether the account has more than max_connections, on all servers."""
        return 0 <= self.max_connections < len(self.clients) + self.num_elsewhere

    def set_clients_elsewhere(self, server_id: str, number: int, leafs: int = 0) -> None:
        """Note the numbers of its clients and leaf node connections on another server."""
        for count, table in (number, self.clients_elsewhere), (leafs, self.leafs_elsewhere):
            if count > 0:
                table[server_id] = count
            else:
                table.pop(server_id, None)

    @property
    def slow_consumers(self) -> int:
        """How often one of its connections was closed, or kept, as a slow consumer."""
        return self._closed_as_slow + self.traffic()["slow"]

    def traffic(self) -> dict[str, int]:
        """Return the counts in TRAFFIC of all present and former connections, and of links.

        With MANY_CLIENTS clients or more, the result may be COUNT_INTERVAL seconds old: the caller may ask
        each time that a client connects or leaves.
        """
        if len(self.clients) < MANY_CLIENTS:
            return self._count_traffic()
        now = monotonic()
        if now - self._counted_at > COUNT_INTERVAL:
            self._counted, self._counted_at = self._count_traffic(), now
        return self._counted

    def _count_traffic(self) -> dict[str, int]:
        clients: list[Subscriber] = [each.client for each in self.clients.values() if each.client]
        leafs = self._leaf_sessions()
        links = [*self._links().values()]
        return {
            name: self.closed_traffic[name]
            + total(clients, name)
            + (total(leafs, name) if name in _NOT_SENT else 0)
            + sum(counts.get(name, 0) for counts in links)
            for name in TRAFFIC
        }

    def _links(self) -> dict[str, dict[str, int]]:
        """Return link_traffic_of() with names."""
        links = self.link_traffic_of()
        return {kind: dict(zip(LINK_TRAFFIC, counts, strict=True)) for kind, counts in links.items()}

    def _leaf_sessions(self) -> "list[Subscriber]":
        return [session.client for session in self.leafs.values() if session.client]

    def link_traffic(self) -> dict[str, dict[str, int]]:
        """Return the part of traffic() that has gone over links, by kind of link."""
        links, leafs = self._links(), self._leaf_sessions()
        for name in "in_msgs", "in_bytes":
            links["leafs"][name] = self.closed_leaf_traffic[name] + total(leafs, name)
        return links

    def statz(self) -> dict[str, object]:
        """Return connections, subscriptions and traffic as JSON values (AccountStat in events.go)."""
        traffic, links = self.traffic(), self.link_traffic()
        return {
            "acc": self.name,
            "name": self.name_tag,
            "conns": len(self.clients),
            "leafnodes": len(self.leafs),
            "total_conns": len(self.clients) + len(self.leafs),
            "num_subscriptions": self.sublist.count(),
            "sent": _counts(traffic, links, "out"),
            "received": _counts(traffic, links, "in"),
            "slow_consumers": self._closed_as_slow + traffic["slow"],
        }


def _counts(traffic: dict[str, int], links: dict[str, dict[str, int]], way: str) -> dict[str, object]:
    def of(counts: dict[str, int]) -> dict[str, int]:
        return {"msgs": counts[f"{way}_msgs"], "bytes": counts[f"{way}_bytes"]}

    return of(traffic) | {kind: of(counts) for kind, counts in links.items()}
