"""What a service manager is told (sd_notify(3)): readiness, reloads, the end, and that all is well."""

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnats.runtime.pollers import Pollers
    from gnats.server.server import Server

_PINGS = 3
"""Watchdog intervals are cut into so many: one that is late does no harm."""


class Notifier:
    """Sends messages to the socket at `address`; @ at its beginning means an abstract one.

    What cannot be sent is dropped: the service manager is not needed for serving.
    """

    def __init__(self, address: str) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address

    def notify(self, *assignments: str) -> bool:
        """Send NAME=value lines; whether that was possible."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            try:
                sock.sendto("\n".join(assignments).encode(), self._address)
            except OSError:
                return False
        return True


class Service:
    """A server as the service manager sees it. Made and used in the server's loop, see start_service()."""

    def __init__(self, server: "Server", notifier: Notifier, watchdog: float) -> None:
        self._server = server
        self._notifier = notifier
        self._stopping = False
        server.on_state = self.on_state
        self.on_state("ready")
        self._watchdog = asyncio.create_task(self._watch(watchdog / _PINGS)) if watchdog else None

    def on_state(self, state: str) -> None:
        """Tell about "ready", "reloading" (then "ready" again), "lame duck" or "stopping"."""
        if self._stopping:
            return
        if state == "ready":
            url = self._server.client_url
            self._notifier.notify("READY=1", f"STATUS=Serving clients at {url}")
        elif state == "reloading":
            now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            self._notifier.notify(
                "RELOADING=1", f"MONOTONIC_USEC={now}", "STATUS=Reloading the configuration"
            )
        elif state == "lame duck":
            self._notifier.notify("STATUS=Lame duck mode: clients are being moved away")
        else:
            self._stopping = True
            self._notifier.notify("STOPPING=1", "STATUS=Shutting down")

    async def _watch(self, interval: float) -> None:
        """Ping as long as every poller goes round when it is woken; that this runs speaks for the loop."""
        seen: list[int] = []
        while True:
            pollers = self._server.pollers
            rounds = _rounds(pollers) if pollers else []
            if self._stopping or all(now > then for now, then in zip(rounds, seen, strict=False)):
                self._notifier.notify("WATCHDOG=1")
            seen = rounds
            if pollers:
                for poller in pollers.all:
                    poller.wake()
            await asyncio.sleep(interval)


def start_service(server: "Server", environ: Mapping[str, str] = os.environ) -> Service | None:
    """Speak for a server that is ready to the service manager that the environment names, if it names one."""
    address = environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return None
    return Service(server, Notifier(address), _watchdog(environ))


def _watchdog(environ: Mapping[str, str]) -> float:
    """Seconds within which a ping is expected, 0 for none (sd_watchdog_enabled(3))."""
    usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or (pid and pid != str(os.getpid())):
        return 0.0
    return int(usec) / 1e6


def _rounds(pollers: "Pollers") -> list[int]:
    return [poller.stats()["wakeups"] for poller in pollers.all]
