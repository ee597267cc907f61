"""Accounts flood the server over links that come and go, and clients do: each event is handled, or counted.

The threads of all pollers charge the same inbox.
"""

from __future__ import annotations

from functools import partial

import pytest
from support.process import SANITIZED
from support.runningplane import RunningPlane, Wire
from support.servers import until
from support.stress import SCALE, together

from gnats.connection.closed_state import ClosedState
from gnats.core.accounts.account import Account
from gnats.core.internal import InternalSubscriber
from gnats.core.runtime.inbox import EV_MSG
from gnats.core.runtime.kinds import ACCOUNT

pytestmark = pytest.mark.timeout(120 * SCALE)

ROUNDS = (3 if SANITIZED else 20) * SCALE
BURST = 2000
ACCOUNTS = 3
GREETING = b"INFO {}\r\n"


def flood(plane: RunningPlane, number: int) -> None:
    """Send bursts for each account over a link of its own each time."""
    for _ in range(ROUNDS):
        routed = number % 2 == 1
        with plane.control:
            poller = number % len(plane.pollers)
            peer = plane.route(poller, greeting=GREETING) if routed else plane.inbound(poller)
        with Wire(peer) as wire:
            if routed:
                wire.until(GREETING)  # it drops what it gets before it has joined
            for account in range(ACCOUNTS):
                wire.send(b"RMSG A%d service 0\r\n\r\n" % account * BURST)
            wire.fence()


def publish(plane: RunningPlane, account: Account, number: int) -> None:
    """Send as many as a client of one account."""
    with plane.control:
        peer = plane.client(account, number % len(plane.pollers))
    with Wire(peer) as wire:
        for _ in range(ROUNDS * ACCOUNTS):
            wire.send(b"PUB service 0\r\n\r\n" * BURST)
            wire.fence()


@pytest.mark.parametrize("pollers", [2, 3])
def test_accounts_flood_over_links(pollers: int) -> None:
    with RunningPlane(pollers) as plane:
        services, accounts = [], []
        with plane.control:
            for number in range(ACCOUNTS):
                accounts.append(plane.account(f"A{number}"))
                service = InternalSubscriber(ACCOUNT, -1, (1 << 20) + number, plane.pollers[0], plane.state)
                service.register(accounts[-1])
                service.subscribe_internal(b"service", None, b"1")
                services.append(service)
        links = [partial(flood, plane, number) for number in range(4)]
        clients = [partial(publish, plane, accounts[0], number) for number in range(2)]
        together(*links, *clients)
        sent = 6 * ROUNDS * ACCOUNTS * BURST

        def accounted() -> int:
            with plane.control:
                handled = sum(event[0] == EV_MSG for event in plane.posted)
                return handled + int(plane.inbox.stats()["dropped"])

        until(lambda: accounted() == sent)
        with plane.control:
            assert plane.inbox.stats()["parked"] == 0
            for service in services:
                service.close_connection(ClosedState.CLIENT_CLOSED)
