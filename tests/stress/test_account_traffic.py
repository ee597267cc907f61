"""Accounts count what goes over routes, both ways, on several pollers, while the control plane reads."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
from support.peer import Peer
from support.routepeer import Fake, RoutePeer
from support.servers import until
from support.stress import SCALE, settle, together
from support.wire import connect_op

from gnats.options.options import Options
from gnats.options.values.accounts import AccountConfig
from gnats.options.values.auth import User
from gnats.options.values.cluster import OFF, ClusterOptions, Compression
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(300 * SCALE)

ROUNDS = 40 * SCALE
BATCH = 50
ROUTES = 4
CLIENTS = 4
ACCOUNTS = ("A", "B")


def options() -> Options:
    return Options(
        host="127.0.0.1",
        port=-1,
        server_name="here",
        io_threads=3,
        cluster=ClusterOptions(port=-1, name="C", compression=Compression(OFF)),
        accounts=[AccountConfig(name) for name in ACCOUNTS],
        users=[User(name.lower(), "p", account=name) for name in ACCOUNTS],
    )


def test_no_message_is_missed() -> None:
    """Nor does a count ever fall, also where several pollers count an account's first messages at once."""
    with ServerThread(options()) as server, ExitStack() as stack:
        address = "127.0.0.1", server.call(lambda s: s.cluster.port if s.cluster else 0)
        routes = [stack.enter_context(Fake()).dial(address) for _ in range(ROUTES)]
        for route in routes:
            for account in ACCOUNTS:
                route.send(b"RS+ %b out\r\n" % account.encode())
            route.fence()

        def bring(route: RoutePeer) -> None:
            for number in range(ROUNDS):
                account = ACCOUNTS[number % 2].encode()
                route.send(b"RMSG %b in 3\r\nabc\r\n" % account * BATCH)
                route.fence()

        def publish(number: int) -> None:
            name = ACCOUNTS[number % 2].lower()
            with Peer(server.port, connect_op(name, "p", pedantic=False, headers=True)) as client:
                for _ in range(ROUNDS):
                    client.send(b"PUB out 5\r\nabcde\r\n" * BATCH)
                    client.fence()

        done = threading.Event()

        def watch() -> None:
            last = dict.fromkeys(ACCOUNTS, (0, 0, 0, 0))
            while not done.is_set():
                for account in ACCOUNTS:
                    found = counts(server, account)
                    assert all(now >= before for now, before in zip(found, last[account], strict=True))
                    last[account] = found

        def work() -> None:
            try:
                together(
                    *(lambda route=route: bring(route) for route in routes),  # type: ignore[misc]
                    *(lambda number=number: publish(number) for number in range(CLIENTS)),  # type: ignore[misc]
                )
            finally:
                done.set()

        together(watch, work)
        brought = ROUTES * ROUNDS // 2 * BATCH
        sent = ROUTES * CLIENTS // 2 * ROUNDS * BATCH
        for account in ACCOUNTS:
            until(lambda account=account: counts(server, account) == (brought, 3 * brought, sent, 5 * sent))  # type: ignore[misc]
        settle(server)


def counts(server: ServerThread, account: str) -> tuple[int, int, int, int]:
    return server.call(lambda s: s.accounts[account].link_traffic_of()["routes"])
