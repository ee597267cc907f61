"""Super-clusters: clusters of one server or more, of any kinds, whose gateways name each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from .clusters import mesh, start
from .launch import Launch
from .monitor import monitor
from .servers import Kind, Server, reserve_port, until


class SuperCluster:
    """Running servers in clusters c0, c1 and so on, on loopback, with monitoring and the debug log.

    `clusters` has the kinds of each cluster's servers. `remotes` says which clusters one names: see
    clusters.mesh. `block` are more lines of each gateway block, `config` lines outside of it. Servers are
    called c0s0, c0s1 and so on; they keep their ports when they start again.
    """

    def __init__(
        self,
        launch: Launch,
        clusters: Sequence[Sequence[Kind]],
        *,
        remotes: Callable[[int, int], Sequence[int]] = mesh,
        block: str = "",
        config: str = "",
        host: str = "127.0.0.1",
    ) -> None:
        self.host = host
        self.ports = [[reserve_port(self) for _ in kinds] for kinds in clusters]
        self.route_ports = [[reserve_port(self) for _ in kinds] for kinds in clusters]
        self.clusters: list[list[Server]] = []
        for number, kinds in enumerate(clusters):
            named = ", ".join(self._remote(other) for other in remotes(number, len(clusters)))
            self.clusters.append([])
            for place, kind in enumerate(kinds):
                lines = [
                    f"server_name: c{number}s{place}",
                    f"gateway {{ name: c{number}, listen: '127.0.0.1:{self.ports[number][place]}'",
                    f"gateways: [{named}]",
                    block,
                    self.gateway_lines(number, place),
                    "}",
                    self._cluster(kind, number, place) if len(kinds) > 1 else "",
                    config,
                ]
                args = "-m", "-1", "-D"
                self.clusters[-1].append(start(launch, *args, config="\n".join(lines), kind=kind))

    def __getitem__(self, number: int) -> Server:
        """Return the first server of a cluster."""
        return self.clusters[number][0]

    def _remote(self, number: int) -> str:
        return f'{{ name: c{number}, url: "nats://{self.host}:{self.told_port(number, 0)}" }}'

    def _cluster(self, kind: Kind, number: int, place: int) -> str:
        """Return the cluster block of a member: the others dial the first one."""
        routes = f"routes: [nats-route://127.0.0.1:{self.told_route_port(number, 0)}]" if place else ""
        own = f"listen: '127.0.0.1:{self.route_ports[number][place]}'\n{self.cluster_lines(number, place)}"
        compression = "compression: off" if kind.compresses else ""
        return f"cluster {{ name: c{number}, {own}\n{compression}\n{routes}\n}}"

    # -- for subclasses --------------------------------------------------------------------------------------

    def told_port(self, number: int, place: int) -> int:
        """Return the port for gateways that other servers are told of."""
        return self.ports[number][place]

    def told_route_port(self, number: int, place: int) -> int:
        """Return the port for routes that other servers are told of."""
        return self.route_ports[number][place]

    def gateway_lines(self, number: int, place: int) -> str:
        """Return more lines of a server's gateway block."""
        return ""

    def cluster_lines(self, number: int, place: int) -> str:
        """Return more lines of a server's cluster block."""
        return ""

    def wait_mesh(self) -> None:
        """Wait until each server is connected to all other clusters, and all of theirs to its cluster."""
        names = {f"c{number}" for number in range(len(self.clusters))}
        for number, servers in enumerate(self.clusters):
            others = names - {f"c{number}"}
            for server in servers:
                until(lambda server=server, others=others: set(outbound(server)) == others)  # type: ignore[misc]
            dialled = sum(map(len, self.clusters)) - len(servers)
            until(lambda servers=servers, dialled=dialled: sum(map(inbound, servers)) == dialled)  # type: ignore[misc]


def outbound(server: Server) -> dict[str, Any]:
    """Return a server's connections to other clusters by their names; none of one that starts."""
    with suppress(OSError):
        found: dict[str, Any] = monitor(server, "/gatewayz")["outbound_gateways"]
        return found
    return {}


def inbound(server: Server) -> int:
    """Return the number of connections that come to a server from other clusters."""
    return sum(map(len, monitor(server, "/gatewayz")["inbound_gateways"].values()))
