"""Notify a service manager (sd_notify(3)) of readiness, reloads, the shutdown, and with watchdog pings."""

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnats.runtime.pollers import Pollers
    from gnats.server.server import Server

LINKED = "X_GNATS_LINKED"
"""Of a server with routes: the names of the servers to which it has all connections, with blanks between."""
HUBS = "X_GNATS_HUBS"
"""Of a leaf node: the names of the servers to which its remotes are connected, with blanks between."""
CLUSTERS = "X_GNATS_CLUSTERS"
"""Of a server with gateways: the names of the clusters to which it is connected, with blanks between."""
_PINGS = 3
"""Pings in each watchdog interval: more than one, so that a late ping does no harm."""


class Notifier:
    """Sends messages to the Unix socket `address`; @ at its beginning means an abstract socket.

    Messages that cannot be sent are dropped: the server works without the service manager.
    """

    def __init__(self, address: str) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address

    def notify(self, *assignments: str) -> bool:
        """Send NAME=value lines; return whether they were sent."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            try:
                sock.sendto("\n".join(assignments).encode(), self._address)
            except OSError:
                return False
        return True


class Service:
    """Notifies the service manager about a server. Used in the server's loop; made by start_service()."""

    def __init__(self, server: "Server", notifier: Notifier, watchdog: float) -> None:
        self._server = server
        self._notifier = notifier
        self._stopping = False
        self._state = ""
        self._links: list[str] = []
        server.on_state = self.on_state
        if server.cluster:
            server.cluster.watchers.add(self._on_links)
        if server.leafs:
            server.leafs.watchers.add(self._on_links)
        if server.gateways:
            server.gateways.watchers.add(self._on_links)
        self.on_state("ready")
        self._watchdog = asyncio.create_task(self._watch(watchdog / _PINGS)) if watchdog else None

    def on_state(self, state: str) -> None:
        """Notify of a new state: "ready", "reloading" (then "ready" again), "lame duck" or "stopping"."""
        if self._stopping:
            return
        self._state = state
        if state == "ready":
            self._notifier.notify("READY=1", *self._serving())
        elif state == "reloading":
            now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            self._notifier.notify(
                "RELOADING=1", f"MONOTONIC_USEC={now}", "STATUS=Reloading the configuration"
            )
        elif state == "lame duck":
            self._notifier.notify("STATUS=Lame duck mode: clients are being moved away")
        else:
            self._stopping = True
            self._notifier.notify("STOPPING=1", "STATUS=Shutting down")

    def _serving(self) -> list[str]:
        status, links = f"STATUS=Serving clients at {self._server.client_url}", []
        if self._server.cluster:
            from gnats.cluster.mesh import linked_names

            linked = linked_names(self._server.cluster)
            servers = "1 other server" if len(linked) == 1 else f"{len(linked)} other servers"
            status += f", connected to {servers} of the cluster"
            links.append(f"{LINKED}={' '.join(linked)}")
        if self._server.leafs and self._server.leafs.remotes:
            from gnats.leafnodes.mesh import hub_names

            hubs, wanted = hub_names(self._server.leafs), len(self._server.leafs.remotes)
            status += f", as a leaf node with {len(hubs)} of {wanted} remotes"
            links.append(f"{HUBS}={' '.join(hubs)}")
        if self._server.gateways:
            clusters = sorted(gateway.name for gateway in self._server.gateways.table if gateway.outbound)
            others = "1 other cluster" if len(clusters) == 1 else f"{len(clusters)} other clusters"
            status += f", connected to {others}"
            links.append(f"{CLUSTERS}={' '.join(clusters)}")
        self._links = links
        return [status, *links]

    def _on_links(self) -> None:
        """Notify of the servers that the server is connected to, if they are others than before."""
        if self._state == "ready" and not self._stopping:
            before = self._links
            message = self._serving()
            if self._links != before:
                self._notifier.notify(*message)

    async def _watch(self, interval: float) -> None:
        """Ping while every poller completes a round after it is woken; running here checks the loop, too."""
        seen: list[int] = []
        while True:
            pollers = self._server.pollers
            rounds = _rounds(pollers) if pollers else []
            if self._stopping or all(now > then for now, then in zip(rounds, seen, strict=False)):
                self._notifier.notify("WATCHDOG=1")
            seen = rounds
            if pollers:
                for poller in pollers.all:
                    poller.wake()
            await asyncio.sleep(interval)


def start_service(server: "Server", environ: Mapping[str, str] = os.environ) -> Service | None:
    """Notify the service manager that the environment names, if any, that the server is ready; keep on."""
    address = environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return None
    return Service(server, Notifier(address), _watchdog(environ))


def _watchdog(environ: Mapping[str, str]) -> float:
    """Return the watchdog interval in seconds, 0 without a watchdog (sd_watchdog_enabled(3))."""
    usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(usec) / 1e6


def _rounds(pollers: "Pollers") -> list[int]:
    return [poller.stats()["wakeups"] for poller in pollers.all]
