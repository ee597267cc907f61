"""Dial the remotes of leaf nodes (connectToRemoteLeafNode): which URL, when, how often."""

import random
import socket
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from gnats.clock import sleep
from gnats.go.text import join_host_port, quote
from gnats.go.url import URL
from gnats.leafnodes.remote import Remote
from gnats.options.values.leafnodes import DIAL_TIMEOUT
from gnats.runtime.dial import Connect, Resolve, connect_socket, dial, is_reported, look_up, random_address

if TYPE_CHECKING:
    from gnats.log.logger import Logger
    from gnats.options.options import Options

SHARED_SYSTEM_DELAY = 0.25
"""Seconds before the system account's remote is dialled first by a server that has other servers."""


class Solicitor:
    """Dials remotes, and runs `create` with each socket, its address, its remote and its URL.

    `spawn` runs a coroutine until the server shuts down. `failed` is called with a remote that cannot be
    dialled, and why.
    """

    def __init__(
        self,
        log: "Logger",
        *,
        options: "Callable[[], Options]",
        create: Callable[[socket.socket, str, int, Remote, URL], Coroutine[Any, Any, None]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        failed: Callable[[Remote, str], object],
        connect: Connect = connect_socket,
        resolve: Resolve = look_up,
    ) -> None:
        self._log = log
        self._options = options
        self._create = create
        self._spawn = spawn
        self._failed = failed
        self._connect = connect
        self._resolve = resolve

    def dial(self, remote: Remote, *, shares_system: bool = False) -> None:
        """Dial a remote for the first time. `shares_system`: it is the system account's, in a cluster."""
        if shares_system:
            self._log.debug("Will delay first leafnode connect to shared system account due to clustering")
            remote.delay = SHARED_SYSTEM_DELAY
        self._start(remote, first=True)

    def dial_again(self, remote: Remote) -> None:
        """Dial a remote whose connection was lost, after a while."""
        self._start(remote, first=False, pause=self._options().leafnodes.reconnect_interval)

    def _start(self, remote: Remote, *, first: bool, pause: float = 0.0) -> None:
        """Dial a remote, unless that goes on already: it was disabled and enabled while it waited."""
        if not remote.dialling:
            remote.dialling = True
            self._spawn(self._dial(remote, first=first, pause=pause))

    async def _dial(self, remote: Remote, *, first: bool, pause: float) -> None:
        try:
            found = await self._reach(remote, first=first, pause=pause)
        finally:
            remote.dialling = False
        if found:
            await self._create(*found)

    async def _reach(
        self, remote: Remote, *, first: bool, pause: float
    ) -> tuple[socket.socket, str, int, Remote, URL] | None:
        """Return a socket that is connected to a remote, with its address; None for a remote that is gone."""
        if pause:
            await sleep(pause)
        if remote.delay > 0:
            await sleep(remote.delay)
            remote.delay = 0.0
        attempts = 0
        while remote.valid:
            url = remote.next_url()
            try:
                sock, host, port = await self._open(remote, url)
            except OSError as exc:
                attempts += 1
                self._report(url, attempts, exc, first=first)
                self._failed(remote, str(exc))
                interval = self._options().leafnodes.reconnect_interval
                await sleep(interval + random.uniform(0, interval))
                continue
            if remote.valid:
                return sock, host, port, remote, url
            sock.close()
        return None

    async def _open(self, remote: Remote, url: URL) -> tuple[socket.socket, str, int]:
        """Connect to a URL's server. Raises OSError with nats-server's text."""
        host, port = await random_address(url.host, self._resolve)
        where = join_host_port(host, port)
        resolved = f" ({where})" if where != url.host else ""
        self._log.debug(f"Trying to connect as leafnode to remote server on {quote(url.host)}{resolved}")
        block = self._options().leafnodes
        seconds = next(
            (each for each in (remote.options.dial_timeout, block.dial_timeout) if each > 0), DIAL_TIMEOUT
        )
        return await dial((host, port), seconds, self._connect), host, port

    def _report(self, url: URL, attempts: int, exc: OSError, *, first: bool) -> None:
        what = f"Error trying to connect as leafnode to remote server {quote(url.host)}"
        reported = is_reported(self._options(), attempts, first=first)
        log = self._log.error if reported else self._log.debug
        log(f"{what} (attempt {attempts}): {exc}")
