"""Lame duck mode (lameDuckMode in server.go): close clients one by one, to spread their reconnects."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping

from gnats.client.session import Session
from gnats.clock import sleep
from gnats.connection.closed_state import ClosedState
from gnats.log.logger import Logger
from gnats.options.options import Options

MAX_INTERVAL = 1.0
"""Longest time between two closes, in seconds: a few clients need not be spread over the whole duration."""


class LameDuck:
    """Hand over, send the clients INFO, wait for the grace period, close the clients one by one, shut down.

    The server must have stopped accepting, so that `clients` gets no new ones. `ldm_info` makes the INFO for
    a client, with `ldm`; before it does, `hand_over` has others lead JetStream's groups, and `tell_routes`
    tells other servers. `shutdown` ends the server.
    """

    def __init__(
        self,
        clients: Mapping[int, Session],
        opts: Options,
        log: Logger,
        ldm_info: Callable[[Session], bytes],
        hand_over: Callable[[], Awaitable[None]],
        tell_routes: Callable[[], object],
        shutdown: Callable[[], Awaitable[None]],
    ) -> None:
        self._clients = clients
        self._opts = opts
        self._log = log
        self._ldm_info = ldm_info
        self._hand_over = hand_over
        self._tell_routes = tell_routes
        self._shutdown = shutdown
        self._task = asyncio.create_task(self._run())

    def cancel(self) -> None:
        """Stop closing clients, and do not shut down: the caller does both."""
        self._task.cancel()

    async def _run(self) -> None:
        opts, log = self._opts, self._log
        await self._hand_over()
        clients = list(self._clients.values())
        if clients:
            self._tell_routes()
            for session in clients:
                if session.client and session.takes_info():
                    session.client.enqueue_proto(self._ldm_info(session))
            await sleep(opts.lame_duck_grace_period)
            log.notice("Closing existing clients")
            spread = opts.lame_duck_duration - opts.lame_duck_grace_period
            interval = min(spread / len(clients), MAX_INTERVAL)
            for session in clients[:-1]:
                session.close(log, ClosedState.SERVER_SHUTDOWN)
                await sleep(random.uniform(interval / 2, interval))
            clients[-1].close(log, ClosedState.SERVER_SHUTDOWN)
        await self._shutdown()
