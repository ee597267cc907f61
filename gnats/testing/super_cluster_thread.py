"""Clusters in threads of this process, joined by gateways, for tests of programs in several places."""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Self

from gnats.gateways import mesh
from gnats.gateways.gateways import Gateways
from gnats.go.hostport import RANDOM_PORT
from gnats.go.url import URL
from gnats.options.values.accounts import AccountConfig
from gnats.options.values.cluster import LOOPBACK
from gnats.options.values.gateway import GatewayOptions, RemoteGatewayOptions
from gnats.server.server import Server
from gnats.testing.cluster_thread import ClusterThread, Place, new_mark, require_leader
from gnats.testing.server_thread import STOP_TIMEOUT, ServerThread

_SYSTEM_ACCOUNT = "SYS"


class SuperClusterThread:
    """Clusters on 127.0.0.1, joined by gateways.

    Each is a ClusterThread of `size` servers and `leafs` leaf nodes.
    They are called test-0, test-1 and so on, their servers test-0-s0, their leaf nodes test-0-l0. Keywords
    are those of ClusterThread; `gateway`, a GatewayOptions, sets options of the members' gateways, too.
    With leaf nodes, members have a system account SYS, unless `system_account` names another one.

    `clusters` has them by number. Each may stop and start as a whole, or server by server: its calls return
    when the servers of the other clusters have noticed, too, and its wait_for_interest() is about all
    clusters. Use it as a context manager, or call start() and stop(), from one thread.
    """

    def __init__(
        self, clusters: int = 2, size: int = 1, *, leafs: int = 0, name: str = "test", **options: Any
    ) -> None:
        if clusters < 1:
            raise ValueError(f"a super-cluster has at least one cluster, not {clusters}")
        gateway: GatewayOptions = options.pop("gateway", None) or GatewayOptions()
        self._starting = False
        self._clusters = [
            _Cluster(self, gateway, size, leafs=leafs, name=f"{name}-{number}", **options)
            for number in range(clusters)
        ]

    def __len__(self) -> int:
        return len(self._clusters)

    @property
    def clusters(self) -> list[ClusterThread]:
        """The clusters by number."""
        return list(self._clusters)

    @property
    def client_url(self) -> str:
        """A URL of the first server that runs. Raises RuntimeError when none does."""
        return self.client_urls[0]

    @property
    def client_urls(self) -> list[str]:
        """The URLs of all servers that run, but for leaf nodes. Raises RuntimeError when none does."""
        urls = [url for cluster in self._clusters if cluster.running for url in cluster.client_urls]
        if not urls:
            raise RuntimeError("no server of the super-cluster runs")
        return urls

    # -- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all servers that do not run; return when all are connected.

        Each is connected to its cluster, and to a server of each other cluster. That takes a second at
        least: servers wait so long before they dial other clusters. Raises as ClusterThread.start().
        """
        try:
            self._starting = True
            try:
                for cluster in self._clusters:
                    cluster.start()
            finally:
                self._starting = False
            self.wait_for_gateways()
        except BaseException:
            self._stop_all(check=False)
            raise

    def stop(self) -> None:
        """Stop all servers, as ServerThread.stop() does. Idempotent. Raises what that raises."""
        self._stop_all(check=ServerThread.checks_rest)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        self._stop_all(check=ServerThread.checks_rest and kind is None)

    def _stop_all(self, *, check: bool) -> None:
        with ExitStack() as stack:
            for cluster in self._clusters:  # the last one stops first
                stack.callback(cluster.stop_servers, check=check)

    # -- waits -----------------------------------------------------------------------------------------------

    def wait_for_interest(self) -> None:
        """Return when each running server knows what clients of all others have subscribed to.

        It takes subscriptions into account that a server has answered: call the client's flush() before. A
        message that is published afterwards, to any server of any cluster, reaches them. Raises TimeoutError.
        """
        mark = new_mark()
        # Interest goes from leaf nodes to a cluster, to the other clusters, and to their leaf nodes.
        for cluster in self._clusters:
            cluster.gather_interest(mark)
        servers = [server for cluster in self._clusters for server in cluster.running_members()]
        for server in servers:
            server.call(lambda inner: mesh.send_mark(_gateways_of(inner), mark))
        for server in servers:
            server.run(mesh.wait_for_mark(_gateways_of(server.server), mark))
        for cluster in self._clusters:
            cluster.tell_leafs(mark)

    def wait_for_gateways(self) -> None:
        """Return when each running server is connected to all other clusters that run, and to them only.

        The calls that start and stop servers do this by themselves. Raises TimeoutError.
        """
        if self._starting:
            return
        ids = {cluster.name: cluster.member_ids() for cluster in self._clusters if cluster.running}
        for cluster in self._clusters:
            others = {name: those for name, those in ids.items() if name != cluster.name}
            for server in cluster.running_members():
                try:
                    server.run(mesh.wait_for_clusters(_gateways_of(server.server), others))
                except TimeoutError:
                    missing = (
                        f"a server of {cluster.name} is not connected to just the other clusters that run"
                    )
                    raise TimeoutError(f"{missing}, after {STOP_TIMEOUT:.0f} s") from None
        running = [server for cluster in self._clusters for server in cluster.running_members()]
        if len(running) > sum(map(len, self._clusters)) // 2:
            require_leader(running)

    def remotes(self) -> tuple[RemoteGatewayOptions, ...]:
        """Return all clusters, for the options of their members: each leaves its own one out."""
        return tuple(RemoteGatewayOptions(each.name, each.gateway_urls()) for each in self._clusters)


class _Cluster(ClusterThread):
    """A cluster with gateways to the others of a super-cluster."""

    def __init__(
        self,
        joined: SuperClusterThread,
        gateway: GatewayOptions,
        size: int,
        *,
        leafs: int,
        name: str,
        **options: Any,
    ) -> None:
        super().__init__(size, leafs=leafs, name=name, **options)
        self.name = name
        self._joined = joined
        self._gateway = replace(gateway, name=name, host=LOOPBACK)
        for group in self._members, self._leafs:
            for place in group.places:
                place.name = f"{name}-{place.name}"  # no two servers of all clusters have one name
        for place in self._members.places:
            place.gateway_port = RANDOM_PORT

    def gateway_urls(self) -> tuple[URL, ...]:
        """Return the URLs of the members: other clusters have them in their options before members run."""
        for place in self._members.places:
            place.reserve()
        return tuple(URL("nats", host=f"{LOOPBACK}:{place.gateway_port}") for place in self._members.places)

    def member_ids(self) -> list[str]:
        """Return the ids of the members that run."""
        return self._members.ids

    def running_members(self) -> list[ServerThread]:
        """Return the members that run."""
        return self._running(self._members)

    def stop(self, member: int | None = None) -> None:
        super().stop(member)
        if member is None:  # servers that run go on dialling these ports
            for place in self._members.places:
                place.reserve()
        self._joined.wait_for_gateways()

    def _wait_for_leader(self) -> None:
        """Leave that to the super-cluster, of which a majority must run."""

    def stop_servers(self, *, check: bool) -> None:
        """Stop all servers, and wait for no other cluster."""
        self._stop_all(check=check)

    def wait_for_interest(self) -> None:
        self._joined.wait_for_interest()

    def gather_interest(self, mark: str) -> None:
        """Return when each member knows the interest of this cluster and its leaf nodes."""
        self._gather_interest(mark)

    def tell_leafs(self, mark: str) -> None:
        """Return when the leaf nodes know the interest that their hubs know now."""
        self._tell_leafs(mark)

    def _joining(self, place: Place) -> dict[str, Any]:
        remotes = self._joined.remotes()
        joining: dict[str, Any] = {
            "gateway": replace(self._gateway, port=place.gateway_port, gateways=remotes)
        }
        if self._leafs.places and not self._options.get("system_account"):
            # Beside gateways, a server with a port for leaf nodes must name it.
            accounts = [*self._options.get("accounts", ()), AccountConfig(_SYSTEM_ACCOUNT)]
            joining |= {"accounts": accounts, "system_account": _SYSTEM_ACCOUNT}
        return joining

    def _wait_for_links(self) -> None:
        super()._wait_for_links()
        self._joined.wait_for_gateways()


def _gateways_of(server: Server) -> Gateways:
    assert server.gateways, "the options of a member have a port for gateways"
    return server.gateways
