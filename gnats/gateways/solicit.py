"""Dial other clusters (solicitGateway, reconnectGateway): which URL, when, how often."""

import random
import socket
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from gnats.clock import sleep
from gnats.gateways.remote import Remote
from gnats.go.text import join_host_port, quote
from gnats.go.url import URL
from gnats.runtime.dial import (
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
    from gnats.log.logger import Logger
    from gnats.options.options import Options

DIAL_TIMEOUT = 1.0
CONNECT_DELAY = 1.0
"""Seconds from one round over a cluster's URLs to the next."""
CONNECT_DELAY_MAX = 30.0
RECONNECT_DELAY = 1.0
"""Seconds before a lost cluster of the configuration is dialled again; doubled while it refuses."""
IMPLICIT_DELAY = 0.05
"""The same for a cluster that another server has told of, while it refuses."""
SPREAD = 0.1
"""At most so many seconds more, at random."""
_MOST_DOUBLINGS = 16


class Solicitor:
    """Dials clusters, and calls `create` with each socket, its address, its remote and its URL.

    `spawn` runs a coroutine until the server shuts down. `failed` is called with a remote that cannot be
    dialled, and why. `forget` is called with one that is not configured, when its attempts have failed;
    without success, they go on.
    """

    def __init__(
        self,
        log: "Logger",
        *,
        options: "Callable[[], Options]",
        create: Callable[[socket.socket, str, int, Remote, URL], object],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        failed: Callable[[Remote, str], object],
        forget: Callable[[Remote], bool],
        connect: Connect = connect_socket,
        resolve: Resolve = look_up,
    ) -> None:
        self._log = log
        self._options = options
        self._create = create
        self._spawn = spawn
        self._failed = failed
        self._forget = forget
        self._connect = connect
        self._resolve = resolve

    def dial(self, remote: Remote) -> None:
        """Dial a cluster for the first time."""
        self._start(remote, first=True)

    def dial_again(self, remote: Remote) -> None:
        """Dial a cluster whose connection was lost, or refused, after a while."""
        refusals = min(remote.refusals, _MOST_DOUBLINGS)
        delay = RECONNECT_DELAY if remote.explicit else IMPLICIT_DELAY if refusals else 0.0
        delay = min(delay * 2.0 ** max(refusals - 1, 0), CONNECT_DELAY_MAX)
        self._start(remote, first=False, delay=delay + random.uniform(0, SPREAD))

    def _start(self, remote: Remote, *, first: bool, delay: float = 0.0) -> None:
        if not remote.dialling:
            remote.dialling = True
            self._spawn(self._dial(remote, first=first, delay=delay))

    async def _dial(self, remote: Remote, *, first: bool, delay: float) -> None:
        try:
            found = await self._reach(remote, first=first, delay=delay)
        finally:
            remote.dialling = False
        if found:
            self._create(*found)

    async def _reach(
        self, remote: Remote, *, first: bool, delay: float
    ) -> tuple[socket.socket, str, int, Remote, URL] | None:
        """Return a socket that is connected to a cluster, and its address; None: the cluster is forgotten."""
        if delay:
            await sleep(delay)
        attempts, pause = 0, CONNECT_DELAY
        while urls := remote.shuffled():
            attempts += 1
            reason = ""
            for url in urls:
                try:
                    return *await self._open(remote, url, attempts, first=first), remote, url
                except OSError as exc:
                    reason = str(exc)
            self._failed(remote, reason)
            block = self._options().gateway
            if not remote.explicit and attempts > max(block.connect_retries, 0) and self._forget(remote):
                return None
            await sleep(pause)
            if block.connect_backoff:
                pause = min(pause * 2, CONNECT_DELAY_MAX)
        return None

    async def _open(
        self, remote: Remote, url: URL, attempts: int, *, first: bool
    ) -> tuple[socket.socket, str, int]:
        """Connect to a URL's server. Raises OSError with nats-server's text."""
        log = self._log
        what = f"{'explicit' if remote.explicit else 'implicit'} gateway {quote(remote.name)} ({url.host})"
        try:
            address = host, port = await random_address(url.host, self._resolve)
        except (OSError, NoAddressError) as exc:
            log.error(f"Error getting IP for {what}: {exc}")
            raise OSError(str(exc)) from None
        reported = is_reported(self._options(), attempts, first=first)
        at = f"{what} at {join_host_port(host, port)} (attempt {attempts})"
        (log.notice if reported else log.debug)(f"Connecting to {at}")
        try:
            return await dial(address, DIAL_TIMEOUT, self._connect), host, port
        except OSError as exc:
            (log.error if reported else log.debug)(f"Error connecting to {at}: {exc}")
            raise
