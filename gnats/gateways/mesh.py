"""Wait until servers of several clusters are connected, and know each other's interest."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from gnats.cluster.mesh import wait_until

if TYPE_CHECKING:
    from gnats.gateways.gateways import Gateways


async def wait_for_clusters(gateways: "Gateways", server_ids: Mapping[str, Collection[str]]) -> None:
    """Return when the server is connected to each of these clusters, and to no other server.

    The ids of each cluster's servers change with each start, as those of gnats.cluster.mesh.wait_for_mesh().
    """
    await wait_until(gateways.watchers, lambda: is_linked(gateways, server_ids))


def is_linked(gateways: "Gateways", server_ids: Mapping[str, Collection[str]]) -> bool:
    """Return whether there is an outbound connection to each of these clusters, and none to another server.

    The peer has registered it, too: it has answered.
    """
    if any(gateway.remote_id not in server_ids.get(gateway.name, ()) for gateway in gateways.table):
        return False
    linked = [gateway.name for gateway in gateways.table if gateway.outbound and gateway.answered]
    return sorted(linked) == sorted(server_ids)


def send_mark(gateways: "Gateways", mark: str) -> None:
    """Send a mark over all inbound connections, behind all interest that this cluster has now.

    It is an INFO with the mark as its nonce, which is without meaning in any but the first INFO.
    """
    for gateway in gateways.table.inbound:
        gateway.send(gateways.info.line(nonce=mark))


async def wait_for_mark(gateways: "Gateways", mark: str) -> None:
    """Return when all other clusters have sent the mark, and so have told of their interest before it."""
    await wait_until(
        gateways.watchers,
        lambda: all(gateway.mark == mark for gateway in gateways.table if gateway.outbound),
    )
