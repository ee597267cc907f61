"""The servers of a cluster that is about to start: names, ports, configurations."""

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
    name: str = NAME
    port: int = PORT
    """The client port of the first member; the others, then leaf nodes, have the next ones. -1: free ones."""
    threads: int | None = None
    jetstream: bool = False
    leafs: int = 0
    """Leaf nodes, each of all members."""

    def validate(self) -> None:
        """Raise OptionError, one line, for what cannot be."""
        if not 1 <= self.size <= MOST:
            raise OptionError(f"a cluster has 1 to {MOST} servers, not {self.size}")
        if not 0 <= self.leafs <= MOST:
            raise OptionError(f"--leaf takes 0 to {MOST} leaf nodes, not {self.leafs}")
        last = 65536 - self.size - self.leafs
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


def plan_members(plan: Plan, free_port: Callable[[], int]) -> list[Member]:
    """Give the members, and then the leaf nodes, names and ports, which ascend.

    `free_port` returns one that nobody else gets.
    """
    monitored = find_spec("aiohttp") is not None
    routed = plan.size > 1
    names = [f"s{number + 1}" for number in range(plan.size)]
    numbers = range(plan.size + plan.leafs)
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
        lines += _cluster_block(plan, member, members)
    if member.leaf_port:
        lines.append(f'leafnodes {{ listen: "{LOOPBACK}:{member.leaf_port}" }}')
    if member.is_leaf:
        lines += _remotes(member, members)
    return "\n".join(lines) + "\n"


def _cluster_block(plan: Plan, member: Member, members: list[Member]) -> list[str]:
    others = [other for other in members if other != member and not other.is_leaf]
    return [
        "cluster {",
        f"    name: {quote(plan.name)}",
        f'    listen: "{LOOPBACK}:{member.route_port}"',
        "    routes: [",
        *(f'        "{other.route_url}"' for other in others),
        "    ]",
        "}",
    ]


def _remotes(leaf: Member, members: list[Member]) -> list[str]:
    """Have a leaf node dial all members in turn, each leaf node another one first."""
    hubs = [member for member in members if not member.is_leaf]
    first = [member for member in members if member.is_leaf].index(leaf) % len(hubs)
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
