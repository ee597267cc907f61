"""Wait until leaf nodes are connected to their hubs, and both know each other's interest."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from gnats.cluster.mesh import wait_until

if TYPE_CHECKING:
    from gnats.leafnodes.leaf import Leaf
    from gnats.leafnodes.leafnodes import LeafNodes


async def wait_for_hubs(leafs: "LeafNodes", server_ids: Collection[str]) -> None:
    """Return when all remotes are connected, to these servers.

    The other server has joined then, too: it does so before it says that this one may. The ids change with
    each start of a server, as those of gnats.cluster.mesh.wait_for_mesh().
    """
    await wait_until(leafs.watchers, lambda: is_linked(leafs, server_ids))


def is_linked(leafs: "LeafNodes", server_ids: Collection[str]) -> bool:
    """Return whether all remotes that are not disabled are connected, to these servers."""
    linked = [leaf.peer_id for leaf in leafs.table if leaf.solicited and not leaf.closing]
    wanted = sum(remote.valid for remote in leafs.remotes)
    return len(linked) == wanted and all(peer_id in server_ids for peer_id in linked)


async def wait_for_departure(leafs: "LeafNodes", server_ids: Collection[str]) -> None:
    """Return when there is no connection to any of these servers, which have ended."""
    await wait_until(leafs.watchers, lambda: not any(_of(leafs, server_ids)))


def send_mark(leafs: "LeafNodes", mark: str) -> None:
    """Send a mark over all connections, behind all interest that the server has now.

    It is an INFO with the mark as its nonce, which is without meaning in any but the first INFO.
    """
    for leaf in leafs.table:
        leaf.send(leafs.info.line(nonce=mark, remote_account=leaf.account.name))


async def wait_for_mark(leafs: "LeafNodes", mark: str, server_ids: Collection[str]) -> None:
    """Return when those of these servers that are connected have sent the mark.

    They have told of their interest before it.
    """
    await wait_until(leafs.watchers, lambda: all(leaf.mark == mark for leaf in _of(leafs, server_ids)))


def hub_names(leafs: "LeafNodes") -> list[str]:
    """Return the names of the servers to which remotes are connected, one for each, sorted."""
    return sorted(leaf.peer_name for leaf in leafs.table if leaf.solicited)


def _of(leafs: "LeafNodes", server_ids: Collection[str]) -> "Iterator[Leaf]":
    return (leaf for leaf in leafs.table if leaf.peer_id in server_ids)
