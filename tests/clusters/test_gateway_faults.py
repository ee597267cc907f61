"""Servers of a super-cluster are killed and reloaded, gateways and routes harmed, while clients publish.

GNATS_CLUSTER_SECONDS is how long each super-cluster suffers, GNATS_CLUSTER_SEED what is drawn from.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from support.launch import launcher
from support.monitor import monitor
from support.reload import hang_up
from support.servers import KINDS, REFERENCE, Kind, Server, selected
from support.superclusters import SuperCluster, inbound

from .campaign import HARM, SEED, Campaign, seconds
from .conftest import require_all
from .load import Answerer, Asker, Group, Listener, LoadClient
from .members import ACCOUNTS
from .proxy import DEAF, MODES, MUTE, Proxy

SECONDS = seconds(15)

pytestmark = [pytest.mark.timeout(240 + 4 * SECONDS), pytest.mark.waits]

Kinds = tuple[tuple[Kind, Kind], tuple[Kind, Kind]]
LOOP, THREADS = KINDS["gnats-loop"], KINDS["gnats-threads"]
WORLDS: list[Kinds] = [
    ((LOOP, LOOP), (LOOP, LOOP)),
    ((THREADS, THREADS), (THREADS, THREADS)),
    ((THREADS, REFERENCE), (REFERENCE, LOOP)),
]
"""The kinds of both clusters: of one kind alone, and with the reference in each of them."""
PINGS = "ping_interval: '1s', ping_max: 2"
ENDS = "lame_duck_duration: '30s', lame_duck_grace_period: '0.5s'"
"""It is a second from client to client at most."""
BLOCK = "write_deadline: '2s'"
ASKED = 100
"""Requests of each server's client to the other cluster, while everything is whole."""
LAME_DUCK = signal.SIGUSR2
SPARE = "accounts {\n  SPARE { users: [ { user: x, password: p } ] }"
"""An account that comes and goes with reloads, and its users with it."""


def named(kinds: Kinds) -> str:
    return " and ".join("+".join(kind.name for kind in pair) for pair in kinds)


class FaultySuperCluster(SuperCluster):
    """Two clusters of two servers, with a proxy before each port for gateways and each one for routes."""

    def __init__(self, launch: Callable[..., object], kinds: Kinds) -> None:
        places = [(number, place) for number in range(2) for place in range(2)]
        self.gateway_proxies = {
            at: Proxy(lambda at=at: self.ports[at[0]][at[1]])  # type: ignore[misc]
            for at in places
        }
        self.route_proxies = {
            at: Proxy(lambda at=at: self.route_ports[at[0]][at[1]])  # type: ignore[misc]
            for at in places
        }
        super().__init__(
            launch,  # type: ignore[arg-type]
            kinds,
            config=f"{PINGS}\n{ENDS}\n{ACCOUNTS}",
            block=BLOCK,
        )

    @property
    def servers(self) -> list[Server]:
        return [server for servers in self.clusters for server in servers]

    @property
    def proxies(self) -> dict[str, Proxy]:
        """All proxies, by what is behind them."""
        found = {f"gateway of c{n}s{place}": proxy for (n, place), proxy in self.gateway_proxies.items()}
        return found | {f"routes of c{n}s{place}": proxy for (n, place), proxy in self.route_proxies.items()}

    def told_port(self, number: int, place: int) -> int:
        return self.gateway_proxies[number, place].port

    def told_route_port(self, number: int, place: int) -> int:
        return self.route_proxies[number, place].port

    def gateway_lines(self, number: int, place: int) -> str:
        return f"advertise: '127.0.0.1:{self.told_port(number, place)}'"

    def cluster_lines(self, number: int, place: int) -> str:
        return f"{PINGS}, {BLOCK}, advertise: '127.0.0.1:{self.told_route_port(number, place)}'"


class SuperCampaign(Campaign):
    """Servers 0 and 1 are of cluster 0, servers 2 and 3 of cluster 1.

    `group` has members at all servers, and so takes what is published in its own cluster. Each of `abroad`
    has members in one cluster only, which so take what is published in the other one.

    Where a server of a cluster with nats-server leaves in lame duck mode, plain subscribers get some messages
    twice, as between two nats-servers: those that it passes on to a group whose member it has closed.
    """

    def __init__(self, world: FaultySuperCluster, seed: int) -> None:
        self.world = world
        self.abroad = [Group(f"abroad{number}", 1 + number) for number in range(2)]
        self.spare: set[int] = set()
        self.ends = [signal.SIGTERM]
        if not any(server.kind.is_reference for server in world.servers):
            self.ends.append(LAME_DUCK)
        super().__init__(world.servers, seed)
        numbers = range(len(self.servers))
        self.answerers = [Answerer(self.servers[n], n, f"c{n // 2}") for n in numbers]
        self.askers = [Asker(self.servers[n], n, f"c{1 - n // 2}") for n in numbers]

    def listener(self, number: int, rng: random.Random) -> Listener:
        return Listener(self.servers[number], number, rng, self.group, self.abroad[number // 2])

    def groups_of(self, number: int) -> list[Group]:
        return [self.group, *self.abroad]

    @property
    def clients(self) -> list[LoadClient]:
        return [*self.answerers, *super().clients, *self.askers]

    async def harm(self) -> None:
        number = self.rng.randrange(len(self.servers))
        what = self.rng.choice(("kill", "stop", "reload", "flap", DEAF, MUTE, *MODES))
        lasts = self.rng.uniform(0.1, HARM) * (2.5 if self.rng.random() < 0.25 else 1)
        where, proxy = self.rng.choice(list(self.world.proxies.items()))
        if what == "kill":
            await self.kill(number, lasts)
        elif what == "stop":
            await self.stop(number, self.rng.choice(self.ends))
        elif what == "reload":
            await self.reload(number)
        elif what == "flap":
            await self.flap(proxy, where)
        else:
            await self.spoil(proxy, what, where, lasts)

    async def reload(self, number: int) -> None:
        """Have an account come, or go."""
        server = self.servers[number]
        self.steps.append(f"reload s{number}")
        self.spare ^= {number}
        text = server.conf.read_text().replace(SPARE, "accounts {")
        if number in self.spare:
            text = text.replace("accounts {", SPARE)
        line = server.lines
        hang_up(server, text.replace(f"\nio_threads: {server.kind.io_threads}\n", ""))
        while "Reloaded server configuration" not in server.log_from(line):
            await self.suffer(0.02)

    def while_quiet(self) -> list[Awaitable[None]]:
        return [asker.ask(ASKED) for asker in self.askers]

    def interest(self, number: int) -> set[tuple[str, str]]:
        """Return what the clients of a server have subscribed to."""
        return self.listeners[number].interest | {(self.answerers[number].subject, "workers")}

    def whole(self) -> bool:
        """Whether all routes and gateways are there, and what clients want is known where it should be.

        Both sides are asked: of one that has not noticed yet that its connection has gone, the peer has none.
        """
        self.last_seen = "not all connections are there"
        numbers = range(len(self.servers))
        with suppress(OSError):
            if [sum(map(inbound, servers)) for servers in self.world.clusters] != [2, 2]:
                return False
            found = [(self.by_route(n), self.by_gateway(n)) for n in numbers]
            wanted = [(self.interest(n ^ 1), self.interest(n ^ 2) | self.interest(n ^ 3)) for n in numbers]
            self.last_seen = found, wanted
            return found == wanted
        return False

    def by_route(self, number: int) -> set[tuple[str, str]]:
        """Return the interest in account A that a server knows of its own cluster's other server."""
        found: set[tuple[str, str]] = set()
        for route in monitor(self.servers[number], "/routez?subs=detail").get("routes") or ():
            for sub in route.get("subscriptions_list_detail") or ():
                if sub.get("account", "A") == "A" and sub["sid"].split()[1] == "A":
                    add_once(found, sub)
        return found

    def by_gateway(self, number: int) -> set[tuple[str, str]]:
        """Return the interest in account A that a server knows of the other cluster."""
        found: set[tuple[str, str]] = set()
        page = monitor(self.servers[number], "/gatewayz?acc_name=A&subs=detail")
        for gateway in page["outbound_gateways"].values():
            for account in gateway.get("accounts") or ():
                for sub in account.get("subscriptions_list_detail") or ():
                    add_once(found, sub)
        return found


def add_once(found: set[tuple[str, str]], sub: dict[str, Any]) -> None:
    """Add what a client wants, or leave out what a server does."""
    key = sub["subject"], sub.get("qgroup", "")
    if key[0].startswith(("load.", "churn.", "ask.")):
        assert key not in found, sub
        found.add(key)


@pytest.fixture(params=WORLDS, ids=named)
def kinds(request: pytest.FixtureRequest) -> Kinds:
    kinds: Kinds = request.param
    if not {*kinds[0], *kinds[1]} <= set(selected()):
        pytest.skip("a kind is not selected")
    require_all((*kinds[0], *kinds[1]))
    return kinds


async def test_a_super_cluster_recovers_from_faults(kinds: Kinds, tmp_path: Path) -> None:
    with launcher(REFERENCE, tmp_path) as launch:
        async with AsyncExitStack() as stack:
            world = FaultySuperCluster(launch, kinds)
            for proxy in world.proxies.values():
                await proxy.start()
                stack.push_async_callback(proxy.close)
            await SuperCampaign(world, SEED).run(SECONDS)
