"""Give accounts connections of their own while routes are up, agreed on with each peer, and take them back.

This server tells its peers of the account, and each of them forgets this server's interest in it that came
over the pool, and answers. Then the account's own connections are dialled, and bring the interest anew. So no
peer ever has the same interest twice, or it would send messages twice.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gnats.clock import timeout
from gnats.cluster.info import PeerInfo, info_line
from gnats.cluster.route import Route
from gnats.cluster.routes import Routes, pool_index
from gnats.go.text import quote, text_bytes
from gnats.nkeys.identity import NuidSource

if TYPE_CHECKING:
    from gnats.log.logger import Logger

ANSWER_TIMEOUT = 2.0
"""Seconds to wait for the next answer of a peer."""


class Pinning:
    """Moves accounts from pools to connections of their own, and back."""

    def __init__(
        self,
        routes: Routes,
        log: "Logger",
        *,
        has_account: Callable[[str], bool],
    ) -> None:
        self._routes = routes
        self._log = log
        self._has_account = has_account
        self._request = ""
        """The id of the request that peers are to answer; empty: none."""
        self._answers = asyncio.Semaphore(0)
        self._moving: set[tuple[str, str]] = set()
        """Remote servers and accounts for which there is no connection of their own yet."""

    # -- this server's part ----------------------------------------------------------------------------------

    async def add(self, accounts: Iterable[str]) -> None:
        """Take accounts out of the pools; return when all peers have done the same, or do not answer."""
        self._request, self._answers = NuidSource().next(), asyncio.Semaphore(0)
        try:
            for _ in range(sum(map(self._move, accounts))):
                async with timeout(ANSWER_TIMEOUT):
                    await self._answers.acquire()
        except TimeoutError:
            what = "confirmation from all routes regarding per-account routes changes"
            self._log.warn(f"Timed out waiting for {what}")
        finally:
            self._request = ""

    def _move(self, account: str) -> int:
        """Take an account out of the pools, and tell the peers; return the number of answers to expect."""
        routes, asked = self._routes, 0
        routes.pin(account)
        index = pool_index(account, routes.pool_size)
        info: dict[str, object] = {
            "route_pool_size": routes.pool_size,
            "route_account": account,
            "route_acc_add_reqid": self._request,
        }
        for remote_id in routes.remote_ids:
            self._drop(remote_id, account)
            for route in routes.pooled(remote_id):
                if route.index == index and not route.closing:
                    route.send(info_line(info))
                    asked += 1
        return asked

    def remove(self, accounts: Iterable[str], *, to_pools: bool) -> None:
        """Take no connections for these accounts alone any more. `to_pools`: the pooled ones carry them.

        There are none at the time, not even one that is being closed: a peer that has told of an account both
        there and on a pooled connection would get its messages twice, and send them twice.
        """
        routes = self._routes
        for account in accounts:
            routes.unpin(account)
            self._moving = {moving for moving in self._moving if moving[1] != account}
            for remote_id in routes.remote_ids if to_pools else ():
                self._tell_pool(remote_id, account, carried=True)

    # -- the peers' part -------------------------------------------------------------------------------------

    def informed(self, route: Route, info: PeerInfo) -> None:
        """Handle a peer's INFO with a request id: its request, or its answer to ours."""
        account = info.route_account
        if not account:
            if info.route_acc_add_reqid == self._request:
                self._answers.release()
        elif not self._has_account(account):
            self._log.error(f"Error looking up account {quote(account)}: account missing")
        else:
            self._routes.pin(account)
            self._drop(route.remote_id, account)
            route.send(info_line(info.sent | {"route_account": ""}))

    def registered(self, route: Route) -> None:
        """Note that there is a new connection for an account alone: the peer uses it from now on.

        Its interest may have come over the pool until it knew.
        """
        moving = route.remote_id, route.account
        if moving in self._moving:
            self._drop(*moving)
            self._moving.remove(moving)

    def _drop(self, remote_id: str, account: str) -> None:
        self._moving.add((remote_id, account))
        self._tell_pool(remote_id, account, carried=False)

    def _tell_pool(self, remote_id: str, account: str, *, carried: bool) -> None:
        """Have the pooled connections to a remote server carry an account, or carry it no longer."""
        name = text_bytes(account)
        for route in self._routes.pooled(remote_id):
            try:
                if route.session and carried:
                    route.session.carry(name)
                elif route.session:
                    route.session.drop_account(name)
            except MemoryError:
                route.out_of_memory(self._log)
