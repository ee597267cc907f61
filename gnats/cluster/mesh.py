"""Wait until servers of a cluster are connected, and know each other's interest."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnats.cluster.cluster import Cluster


async def wait_for_mesh(cluster: "Cluster", remote_ids: Iterable[str]) -> None:
    """Return when the server has all connections to each of these servers, and none to any other.

    All connections are those of the pool, and those of accounts that have one of their own. The ids are
    servers' ids, which change with each start: a connection to a server that has ended does not count.
    """
    wanted = dict.fromkeys(remote_ids, True)
    await wait_until(cluster.watchers, lambda: cluster.routes.linked() == wanted)


def send_mark(cluster: "Cluster", mark: str) -> None:
    """Send a mark over all connections, behind all interest that the server has now.

    It is an INFO with the mark as its nonce, which is without meaning in any but the first INFO.
    """
    for route in cluster.routes:
        route.send(cluster.info.line(nonce=mark))


async def wait_for_mark(cluster: "Cluster", mark: str) -> None:
    """Return when all connected servers have sent the mark, and so have told of their interest before it."""
    await wait_until(cluster.watchers, lambda: all(route.mark == mark for route in cluster.routes))


def linked_names(cluster: "Cluster") -> list[str]:
    """Return the names of the servers to which the server has all connections, sorted."""
    linked = cluster.routes.linked()
    return sorted(
        cluster.routes.to(remote_id)[0].remote_name for remote_id, complete in linked.items() if complete
    )


async def wait_until(watchers: set[Callable[[], object]], condition: Callable[[], bool]) -> None:
    """Return when a condition holds; it is looked at again whenever `watchers` are called."""
    changed = asyncio.Event()
    watchers.add(changed.set)
    try:
        while not condition():
            changed.clear()
            await changed.wait()
    finally:
        watchers.discard(changed.set)
