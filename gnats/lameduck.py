"""Lame duck mode (lameDuckMode in server.go): leave without all clients reconnecting elsewhere at once."""

import asyncio
import random
from typing import TYPE_CHECKING

from gnats.clock import sleep
from gnats.reasons import ClosedState

if TYPE_CHECKING:
    from gnats.server import Server

MAX_INTERVAL = 1.0
"""Seconds between two closes, at most: a few clients need not be spread over the whole duration."""


class LameDuck:
    """Stops accepting, tells the clients, waits the grace period, closes them one by one, shuts down."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        server.log.notice("Entering lame duck mode, stop accepting new clients")
        server.stop_accepting()
        self._task = asyncio.create_task(self._run())

    def cancel(self) -> None:
        """Leave it to somebody else to close the clients."""
        self._task.cancel()

    async def _run(self) -> None:
        server, opts = self._server, self._server.opts
        clients = list(server.clients.values())
        if clients:
            for session in clients:
                if session.client and session.takes_info():
                    session.client.enqueue_proto(server.client_info(session, ldm=True))
            await sleep(opts.lame_duck_grace_period)
            server.log.notice("Closing existing clients")
            spread = opts.lame_duck_duration - opts.lame_duck_grace_period
            interval = min(spread / len(clients), MAX_INTERVAL)
            for session in clients[:-1]:
                session.close(server.log, ClosedState.SERVER_SHUTDOWN)
                await sleep(random.uniform(interval / 2, interval))
            clients[-1].close(server.log, ClosedState.SERVER_SHUTDOWN)
        await server.shutdown()
