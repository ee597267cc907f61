"""The servers of clusters that are about to start: names, ports, configurations."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gnats.errors import OptionError
from gnats.go.hostport import RANDOM_PORT
from gnats.go.text import quote
from gnats.system.ports import LOOPBACK

NAME = "gnats"
PORT = 4222
MOST = 32
"""Members: as many processes, each with connections to all others; and as many leaf nodes."""
HUB_DOMAIN = "hub"
"""The JetStream domain of members with leaf nodes; a leaf node's is its name."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asks for."""

    size: int
    """Servers of each cluster."""
    name: str = NAME
    """The name of the cluster; of several, what their names begin with."""
    port: int = PORT
    """The client port of the first member; the others, then leaf nodes, have the next ones. -1: free ones."""
    threads: int | None = None
    jetstream: bool = False
    leafs: int = 0
    """Leaf nodes, each of all members of a cluster."""
    clusters: int = 1
    """Clusters, joined by gateways."""

    @property
    def names(self) -> list[str]:
        """The names of the clusters."""
        if self.clusters == 1:
            return [self.name]
        return [f"{self.name}-{number + 1}" for number in range(self.clusters)]

    def validate(self) -> None:
        """Raise OptionError, one line, for what cannot be."""
        if not 1 <= self.size <= MOST:
            raise OptionError(f"a cluster has 1 to {MOST} servers, not {self.size}")
        if not 1 <= self.clusters <= MOST // self.size:
            most = f"1 to {MOST // self.size} clusters of {self.size} servers"
            raise OptionError(f"--gateways takes {most}, not {self.clusters}")
        if not 0 <= self.leafs <= MOST:
            raise OptionError(f"--leaf takes 0 to {MOST} leaf nodes, not {self.leafs}")
        last = 65536 - self.size * self.clusters - self.leafs
        if self.port != RANDOM_PORT and not 1 <= self.port <= last:
            raise OptionError(f"--port takes -1 (free ports) or 1 to {last}, not {self.port}")
        if not self.name or " " in self.name:
            raise OptionError("--name takes a name without blanks")
        if self.threads is not None and self.threads < 0:
            raise OptionError(f"--threads takes 0 or more, not {self.threads}")


@dataclass(frozen=True, slots=True)
class Member:
    """A server of the cluster, or a leaf node of it. A port of 0: it has none."""

    name: str
    client_port: int
    monitor_port: int
    route_port: int
    leaf_port: int = 0
    """The port for leaf nodes."""
    is_leaf: bool = False
    cluster: str = NAME
    """The name of its cluster, or of that of a leaf node's hubs."""
    gateway_port: int = 0

    @property
    def client_url(self) -> str:
        """The URL that clients connect to."""
        return f"nats://{LOOPBACK}:{self.client_port}"

    @property
    def monitor_url(self) -> str:
        """The URL of the monitoring pages, empty without them."""
        return f"http://{LOOPBACK}:{self.monitor_port}" if self.monitor_port else ""

    @property
    def route_url(self) -> str:
        """The URL that the other members connect to."""
        return f"nats-route://{LOOPBACK}:{self.route_port}"

    @property
    def leaf_url(self) -> str:
        """The URL that leaf nodes connect to."""
        return f"nats-leaf://{LOOPBACK}:{self.leaf_port}"

    @property
    def gateway_url(self) -> str:
        """The URL that servers of other clusters connect to."""
        return f"nats://{LOOPBACK}:{self.gateway_port}"


def plan_members(plan: Plan, free_port: Callable[[], int]) -> list[Member]:
    """Give the members, and then the leaf nodes, names and ports, which ascend.

    `free_port` returns one that nobody else gets.
    """
    monitored = find_spec("aiohttp") is not None
    routed = plan.size > 1
    joined = plan.clusters > 1
    names = [f"s{number + 1}" for number in range(plan.size * plan.clusters)]
    clusters = [name for name in plan.names for _ in range(plan.size)]
    clusters += [plan.names[number % plan.clusters] for number in range(plan.leafs)]
    numbers = range(len(clusters))
    is_free = plan.port == RANDOM_PORT
    clients = sorted(free_port() if is_free else plan.port + number for number in numbers)
    monitors = sorted(free_port() if monitored else 0 for _ in numbers)
    return [
        Member(
            name,
            clients[number],
            monitors[number],
            free_port() if routed and name in names else 0,
            free_port() if plan.leafs and name in names else 0,
            is_leaf=name not in names,
            cluster=clusters[number],
            gateway_port=free_port() if joined and name in names else 0,
        )
        for number, name in enumerate([*names, *(f"l{number + 1}" for number in range(plan.leafs))])
    ]


def configuration(plan: Plan, member: Member, members: list[Member], folder: Path) -> str:
    """Return the configuration file of a server, whose files are in `folder`."""
    lines = [
        "# Written by `gnats cluster up`, which overwrites it.",
        f"server_name: {member.name}",
        f'listen: "{LOOPBACK}:{member.client_port}"',
    ]
    if member.monitor_port:
        lines.append(f'http: "{LOOPBACK}:{member.monitor_port}"')
    if plan.threads is not None:
        lines.append(f"io_threads: {plan.threads}")
    if plan.jetstream:
        # Streams of leaf nodes are apart from the cluster's: each side has a domain of its own.
        domain = f", domain: {member.name if member.is_leaf else HUB_DOMAIN}" if plan.leafs else ""
        lines.append(f"jetstream {{ store_dir: {quote(str(folder / member.name))}{domain} }}")
    if member.route_port:
        lines += _cluster_block(member, members)
    if member.gateway_port:
        lines += _gateway_block(plan, member, members)
    if member.leaf_port:
        lines.append(f'leafnodes {{ listen: "{LOOPBACK}:{member.leaf_port}" }}')
        if member.gateway_port:
            lines.append("accounts { SYS {} }, system_account: SYS")  # beside gateways it must be named
    if member.is_leaf:
        lines += _remotes(member, members)
    return "\n".join(lines) + "\n"


def _cluster_block(member: Member, members: list[Member]) -> list[str]:
    others = [other for other in _servers_of(member.cluster, members) if other != member]
    return [
        "cluster {",
        f"    name: {quote(member.cluster)}",
        f'    listen: "{LOOPBACK}:{member.route_port}"',
        "    routes: [",
        *(f'        "{other.route_url}"' for other in others),
        "    ]",
        "}",
    ]


def _servers_of(cluster: str, members: list[Member]) -> list[Member]:
    return [member for member in members if member.cluster == cluster and not member.is_leaf]


def _gateway_block(plan: Plan, member: Member, members: list[Member]) -> list[str]:
    lines = [
        "gateway {",
        f"    name: {quote(member.cluster)}",
        f'    listen: "{LOOPBACK}:{member.gateway_port}"',
        "    gateways: [",
    ]
    for name in plan.names:
        if name != member.cluster:
            urls = ", ".join(f'"{other.gateway_url}"' for other in _servers_of(name, members))
            lines.append(f"        {{ name: {quote(name)}, urls: [ {urls} ] }}")
    return [*lines, "    ]", "}"]


def _remotes(leaf: Member, members: list[Member]) -> list[str]:
    """Have a leaf node dial all members of its cluster in turn, each leaf node another one first."""
    hubs = _servers_of(leaf.cluster, members)
    alike = [member for member in members if member.is_leaf and member.cluster == leaf.cluster]
    first = alike.index(leaf) % len(hubs)
    return [
        "leafnodes {",
        "    remotes: [ {",
        "        no_randomize: true",
        "        urls: [",
        *(f'            "{hub.leaf_url}"' for hub in hubs[first:] + hubs[:first]),
        "        ]",
        "    } ]",
        "}",
    ]
