"""Clusters of servers of any kinds on random ports of loopback, and single servers that listen for routes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from .launch import Launch
from .monitor import monitor
from .routepeer import POOL
from .servers import Kind, Server, reserve_port, until

NAME = "C"
_NOT_YET = re.compile(r"[^:\n]+ (?:is|are) not supported yet$", re.MULTILINE)


def launch_routed(launch: Launch, *args: str, config: str = "", cluster: str = "", **more: Any) -> Server:
    """Start a server, with monitoring, that listens for routes on a random port and compresses none.

    Its cluster is called C; `cluster` are further lines of that block, a mode of compression among them,
    `config` lines outside of it.
    """
    return start(launch, "-m", "-1", *args, config=routed(cluster, config), **more)


def routed(cluster: str = "", config: str = "") -> str:
    """Return the configuration of `launch_routed`, to be changed by a reload."""
    return f"cluster {{ name: {NAME}, listen: '127.0.0.1:-1', compression: off\n{cluster}\n}}\n{config}"


def start(launch: Launch, *args: str, config: str, **more: Any) -> Server:
    """Start a server with links. Skip the test where gnats refuses the configuration, as long as it does."""
    try:
        return launch(*args, config=config, **more)
    except RuntimeError as error:
        if not (refusal := _NOT_YET.search(str(error))):
            raise
        pytest.skip(refusal[0].strip())


def mesh(number: int, size: int) -> Sequence[int]:
    """Have each member name all others."""
    return [other for other in range(size) if other != number]


def line(number: int, size: int) -> Sequence[int]:
    """Have each member but the first name the one before it."""
    return [number - 1] if number else []


def star(number: int, size: int) -> Sequence[int]:
    """Have each member but the first name the first."""
    return [0] if number else []


class Cluster:
    """Running servers, one for each of `kinds`, called s0, s1 and so on, whose `routes` name each other.

    `routes` says which members one names: `mesh`, `line`, `star`, or a function like them. `block` are more
    lines of each member's cluster block, `config` lines outside of it; either may be a function of the
    member's number. `host` is what `routes` call this machine. Members have monitoring, the debug log, and
    keep their ports when they start again.
    """

    def __init__(
        self,
        launch: Launch,
        kinds: Sequence[Kind],
        *,
        config: str | Callable[[int], str] = "",
        block: str | Callable[[int], str] = "compression: off",
        routes: Callable[[int, int], Sequence[int]] = mesh,
        name: str | None = NAME,
        host: str = "127.0.0.1",
        args: Sequence[str] = ("-DV",),
    ) -> None:
        self.name = name
        self.host = host
        self.route_ports = [reserve_port(self) for _ in kinds]
        self.servers: list[Server] = []
        for number, kind in enumerate(kinds):
            named = ", ".join(self.route_url(other) for other in routes(number, len(kinds)))
            lines = [
                f"server_name: s{number}",
                "cluster {",
                f"listen: '127.0.0.1:{self.route_ports[number]}'",
                f"name: {name}" if name else "",
                f"routes: [{named}]" if named else "",
                block if isinstance(block, str) else block(number),
                "}",
                config if isinstance(config, str) else config(number),
            ]
            self.servers.append(start(launch, "-m", "-1", *args, config="\n".join(lines), kind=kind))

    def __getitem__(self, number: int) -> Server:
        return self.servers[number]

    def __len__(self) -> int:
        return len(self.servers)

    def route_url(self, number: int) -> str:
        """Return the URL of a member's port for routes."""
        return f"nats-route://{self.host}:{self.route_ports[number]}"

    def wait_mesh(self, links: int | None = POOL + 1) -> None:
        """Wait until each running member has `links` connections to each other one; None: at least one.

        The default is that of an untouched configuration: a pool, and one for the system account.
        """
        running = self.running()
        for number in running:
            others = {f"s{other}" for other in running} - {f"s{number}"}
            until(lambda number=number, others=others: self._has(number, others, links))  # type: ignore[misc]

    def running(self) -> list[int]:
        """Return the numbers of the members that run."""
        return [number for number, server in enumerate(self.servers) if server.process.poll() is None]

    def _has(self, number: int, others: set[str], links: int | None) -> bool:
        found = [self._remote(route) for route in self.routes(number)]
        if set(found) != others:
            return False
        return links is None or all(found.count(other) == links for other in others)

    def _remote(self, route: dict[str, Any]) -> str:
        """Return the name of a route's remote; before nats-server 2.10 the page has its id alone."""
        if name := route.get("remote_name"):
            return str(name)
        ids = {monitor(self.servers[number], "/varz")["server_id"]: f"s{number}" for number in self.running()}
        return ids.get(route["remote_id"], "")

    def routes(self, number: int, query: str = "") -> list[dict[str, Any]]:
        """Return the routes on a member's /routez."""
        routes: list[dict[str, Any]] = monitor(self.servers[number], f"/routez{query}").get("routes") or []
        return routes

    def wait_interest(
        self, number: int, remote: int, subject: str, group: str = "", account: str = "$G"
    ) -> None:
        """Wait until a member knows that another one wants a subject, written as the subscriber wrote it."""
        wanted = f"{subject} {group}".rstrip()

        def known() -> bool:
            return any(
                entry["sid"]
                == (f"R {wanted}" if route.get("account") == account else f"R {account} {wanted}")
                for route in self.routes(number, "?subs=detail")
                if self._remote(route) == f"s{remote}"
                for entry in route.get("subscriptions_list_detail") or []
            )

        until(known)

    def stop(self, number: int, **how: Any) -> None:
        """Stop a member, as Server.stop does."""
        self.servers[number].stop(**how)

    def kill(self, number: int) -> None:
        """Kill a member: its connections are cut. The test must start it again."""
        self.servers[number].kill()

    def start_again(self, number: int) -> None:
        """Start a stopped member again on its ports."""
        self.servers[number].start_again()
