"""The members of a cluster that is about to start: names, ports, configurations."""

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
"""Members: as many processes, each with connections to all others."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asks for."""

    size: int
    name: str = NAME
    port: int = PORT
    """The client port of the first member; the others have the next ones. -1: each has a free one."""
    threads: int | None = None
    jetstream: bool = False

    def validate(self) -> None:
        """Raise OptionError, one line, for what cannot be."""
        if not 1 <= self.size <= MOST:
            raise OptionError(f"a cluster has 1 to {MOST} servers, not {self.size}")
        last = 65536 - self.size
        if self.port != RANDOM_PORT and not 1 <= self.port <= last:
            raise OptionError(f"--port takes -1 (free ports) or 1 to {last}, not {self.port}")
        if not self.name or " " in self.name:
            raise OptionError("--name takes a name without blanks")
        if self.threads is not None and self.threads < 0:
            raise OptionError(f"--threads takes 0 or more, not {self.threads}")


@dataclass(frozen=True, slots=True)
class Member:
    """A server of the cluster. A monitoring port of 0: it has none."""

    name: str
    client_port: int
    monitor_port: int
    route_port: int

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


def plan_members(plan: Plan, free_port: Callable[[], int]) -> list[Member]:
    """Give the members names and ports; `free_port` returns one that nobody else gets."""
    monitored = find_spec("aiohttp") is not None
    return [
        Member(
            f"s{number + 1}",
            free_port() if plan.port == RANDOM_PORT else plan.port + number,
            free_port() if monitored else 0,
            free_port(),
        )
        for number in range(plan.size)
    ]


def configuration(plan: Plan, member: Member, members: list[Member], folder: Path) -> str:
    """Return the configuration file of a member, whose files are in `folder`."""
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
        lines.append(f"jetstream {{ store_dir: {quote(str(folder / member.name))} }}")
    routes = [f'        "{other.route_url}"' for other in members if other != member]
    lines += [
        "cluster {",
        f"    name: {quote(plan.name)}",
        f'    listen: "{LOOPBACK}:{member.route_port}"',
        "    routes: [",
        *routes,
        "    ]",
        "}",
    ]
    return "\n".join(lines) + "\n"
