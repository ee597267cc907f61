"""The server's statistics, which it publishes in the system account (ServerStats in events.go)."""

from typing import TYPE_CHECKING, Protocol

from gnats.connection.closed_state import count_by_kind
from gnats.go.text import rfc3339
from gnats.monitor.pages.jsz import JszServer, varz_jetstream
from gnats.monitor.pages.render import Page
from gnats.system.usage import cores, process, resident_bytes

if TYPE_CHECKING:
    from gnats.core.runtime.state import ServerState
    from gnats.runtime.pollers import Pollers


class StatszServer(JszServer, Protocol):
    """The server as its statistics see it."""

    @property
    def start_time(self) -> int: ...
    @property
    def num_clients(self) -> int: ...
    @property
    def total_clients(self) -> int: ...
    @property
    def num_subscriptions(self) -> int: ...
    @property
    def pollers(self) -> "Pollers | None": ...
    @property
    def state(self) -> "ServerState": ...


def server_stats(server: StatszServer) -> Page:
    """Return the server's statistics."""
    traffic = server.pollers.stats() if server.pollers else {}
    sent = {"msgs": traffic.get("out_msgs", 0), "bytes": traffic.get("out_bytes", 0)}
    received = {"msgs": traffic.get("in_msgs", 0), "bytes": traffic.get("in_bytes", 0)}
    slow, stale, stalls = (
        server.state.slow_consumers,
        server.state.stale_connections,
        server.state.stalls,
    )
    stats: Page = {
        "start": rfc3339(server.start_time),
        "mem": resident_bytes(),
        "cores": cores(),
        "cpu": process.cpu(),
        "connections": server.num_clients,
        "total_connections": server.total_clients,
        "active_accounts": sum(1 for account in server.accounts.values() if account.clients),
        "subscriptions": server.num_subscriptions,
        "sent": sent,
        "sent_to_clients": sent,
        "received": received,
        "received_from_clients": received,
        "slow_consumers": slow,
    }
    if slow:
        stats["slow_consumer_stats"] = count_by_kind(slow)
    if stale:
        stats["stale_connections"] = stale
        stats["stale_connection_stats"] = count_by_kind(stale)
    if stalls:
        stats["stalled_clients"] = stalls
    stats["active_servers"] = 1
    if server.jetstream:
        stats["jetstream"] = varz_jetstream(server, directory=False)
    stats["gomaxprocs"] = cores()
    return stats
