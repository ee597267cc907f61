"""Gossip: which INFO lines tell gateways and routes of other clusters."""

from collections.abc import Iterable, Iterator

from gnats.gateways.info import OwnInfo
from gnats.gateways.remote import Remote
from gnats.gateways.table import GatewayTable


def about_others(info: OwnInfo, remotes: Iterable[Remote], name: str) -> bytes:
    """Return the lines that tell a cluster of all others that are known (gossipGatewaysToInboundGateway)."""
    return _lines(info, (remote for remote in remotes if remote.name != name), to_route=False)


def about_connected(info: OwnInfo, table: GatewayTable) -> bytes:
    """Return the lines that tell a new route of the connected clusters (sendGatewayConfigsToRoute)."""
    return _lines(info, _connected(table), to_route=True)


def _connected(table: GatewayTable) -> Iterator[Remote]:
    return (gateway.remote for gateway in table if gateway.remote)


def _lines(info: OwnInfo, remotes: Iterable[Remote], *, to_route: bool) -> bytes:
    return b"".join(
        info.gossip(remote.name, remote.hosts, to_route=to_route) for remote in remotes if remote.hosts
    )
