"""Dial other servers (connectToRoute, reConnectToRoute): addresses, delays, attempts."""

import itertools
import random
import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from gnats.clock import sleep
from gnats.cluster.route import Route, Target
from gnats.go.text import join_host_port, quote
from gnats.go.url import URL
from gnats.options.options import Options
from gnats.runtime.dial import (
    Address,
    Connect,
    NoAddressError,
    Resolve,
    connect_socket,
    dial,
    is_reported,
    look_up,
    random_address,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from gnats.log.logger import Logger

DIAL_TIMEOUT = 1.0
CONNECT_DELAY = 1.0
"""Seconds from a failed attempt to the next one."""
CONNECT_DELAY_MAX = 30.0
RECONNECT_DELAY = 1.0
"""Seconds before a lost route of the configuration is dialled again."""
SPREAD = 0.1
"""At most so many seconds more, at random, so that two servers do not close each other's connection again and
again."""
REFUSED_DELAY = 0.05
"""Seconds before a server that another one has told of is dialled again when it has closed a connection
before it was registered; doubled each time."""


class Solicitor:
    """Dials servers, and calls `create` with each socket, its address and its target.

    `to_self` has the addresses of this server: a name's addresses that are among them are not dialled.
    `pinned` returns the accounts that have connections of their own. `spawn` runs a coroutine until the
    server shuts down. `failed` is called with a route of the configuration that cannot be dialled, and why.
    """

    def __init__(
        self,
        log: "Logger",
        *,
        options: Callable[[], Options],
        pinned: Callable[[], tuple[str, ...]],
        create: Callable[[socket.socket, str, int, Target], object],
        spawn: "Callable[[Coroutine[Any, Any, None]], object]",
        failed: Callable[[Target, str], object],
        connect: Connect = connect_socket,
        resolve: Resolve = look_up,
    ) -> None:
        self._log = log
        self._options = options
        self._pinned = pinned
        self._create = create
        self._spawn = spawn
        self._failed = failed
        self._connect = connect
        self._resolve = resolve
        self.to_self: frozenset[Address] = frozenset()
        self._refusals: dict[tuple[str, str], int] = {}
        """By address and account: connections in a row that were closed before they were registered."""

    def solicit_routes(self) -> None:
        """Dial the routes of the configuration, and once more for each account with routes of its own."""
        self.solicit(self._options().cluster.routes, ("", *self._pinned()))

    def solicit(self, urls: Iterable[URL], accounts: Iterable[str]) -> None:
        """Dial routes of the configuration for each account; "" stands for the pool."""
        for account, url in itertools.product(accounts, urls):
            self.dial(Target(url, explicit=True, account=account))

    def dial(self, target: Target, *, first: bool = True) -> None:
        """Dial a server until it is connected, or need not be. `first`: not because a route was lost."""
        self._spawn(self._dial(target, first=first))

    def dial_again(self, route: Route) -> None:
        """Dial the peer of a lost route after a while (reConnectToRoute)."""
        target = route.target()
        delay = random.uniform(0, SPREAD)
        if target.explicit:
            delay += RECONNECT_DELAY
        elif route.joined:
            self.accepted(target)
        else:
            delay += self._refused(target)
        self._spawn(self._dial(target, first=False, delay=delay))

    def accepted(self, target: Target) -> None:
        """Forget that a server has refused connections: it has registered one."""
        self._refusals.pop((target.url.host, target.account), None)

    def _refused(self, target: Target) -> float:
        key = target.url.host, target.account
        self._refusals[key] = count = self._refusals.get(key, 0) + 1
        return min(REFUSED_DELAY * 2.0 ** min(count - 1, 16), CONNECT_DELAY_MAX)

    async def _dial(self, target: Target, *, first: bool, delay: float = 0.0) -> None:
        if delay:
            await sleep(delay)
        attempts, pause = 0, CONNECT_DELAY
        while self._valid(target):
            try:
                sock, host, port = await self._open(target)
            except NoAddressError:
                return
            except OSError as exc:
                reason = str(exc)
            else:
                if target.explicit and not self._listed(target):
                    sock.close()
                else:
                    self._create(sock, host, port, target)
                return
            attempts += 1
            level = "ERR" if is_reported(self._options(), attempts, first=first) else "DBG"
            if level == "ERR" or self._log.debug_on:
                self._log.log(level, f"Error trying to connect to route (attempt {attempts}): {reason}")
            if target.explicit:
                self._failed(target, reason)
            cluster = self._options().cluster
            if not target.explicit and attempts > max(cluster.connect_retries, 0):
                self.accepted(target)
                return
            await sleep(pause)
            if cluster.connect_backoff:
                pause = min(pause * 2, CONNECT_DELAY_MAX)

    async def _open(self, target: Target) -> tuple[socket.socket, str, int]:
        """Connect to a target. Raises OSError with nats-server's text, NoAddressError."""
        address = host, port = await random_address(target.url.host, self._resolve, self.to_self)
        where = join_host_port(host, port)
        self._log.debug(f"Trying to connect to route on {target.url.host} ({where})")
        return await dial(address, DIAL_TIMEOUT, self._connect), host, port

    def _valid(self, target: Target) -> bool:
        """Check that the configuration still asks for an explicit route; log when it does not."""
        if not target.explicit:
            return True
        shown = quote(target.url.redacted())
        if not self._listed(target):
            part = "no longer part of configured routes"
            self._log.debug(f"Not attempting to connect to explicit route {shown}, {part}")
            return False
        if target.account and target.account not in self._pinned():
            what = f"{shown} for account {quote(target.account)}, no longer a per-account route"
            self._log.debug(f"Not attempting to connect to route {what}")
            return False
        return True

    def _listed(self, target: Target) -> bool:
        return target.url in self._options().cluster.routes
