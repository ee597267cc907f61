"""What an account's clients cause over a link is charged to that account: the link is never parked for it."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest
from support.dataplane import DataPlane, Peer
from support.wire import header

from gnats.connection.closed_state import ClosedState
from gnats.core.accounts.account import Account
from gnats.core.internal import InternalSubscriber
from gnats.core.runtime.inbox import EV_MSG, EV_MSG_TRACE, LINK_EVENTS, SHARES, SOURCE_EVENTS
from gnats.core.runtime.kinds import ACCOUNT

FLOOD = 4 * SOURCE_EVENTS
ACCOUNT_PART = 5
Connect = Callable[[DataPlane], Peer]


@pytest.fixture(params=["route", "inbound"], ids=["route", "gateway"])
def connect(request: pytest.FixtureRequest) -> Connect:
    connect: Connect = getattr(DataPlane, request.param)
    return connect


class Served:
    """Accounts with a service of the server itself, which the control plane answers when the test drains."""

    def __init__(self, plane: DataPlane, *names: str) -> None:
        self.plane = plane
        self.accounts: list[Account] = []
        self.services: list[InternalSubscriber] = []
        for number, name in enumerate(names):
            self.accounts.append(plane.account(name))
            service = InternalSubscriber(ACCOUNT, -1, (1 << 20) + number, plane.pollers[0], plane.state)
            service.register(self.accounts[-1])
            service.subscribe_internal(b"service", None, b"1")
            self.services.append(service)
        plane.run()
        plane.events.clear()

    def close(self) -> None:
        for service in self.services:
            service.close_connection(ClosedState.CLIENT_CLOSED)
        self.plane.run()


def hand_in(plane: DataPlane, link: Peer, line: bytes, count: int = 1) -> None:
    """Send a line many times, and let the pollers read all of it while the control plane does nothing."""
    rest = line * count
    quiet = 0
    while rest or quiet < 3:
        with suppress(BlockingIOError):
            rest = rest[link.socket.send(rest) :] if rest else rest
        quiet = 0 if sum(poller.run_once(0) for poller in plane.pollers) else quiet + 1
        assert quiet < 100, "the link is not read"


def message(account: str, head: bytes = b"", system: str = "") -> bytes:
    """Return a message to the service; `account` is the requester's if there is a `system` account."""
    if system:
        asked = [f'Nats-Request-Info: {{"host":"h","acc":"{name}"}}' for name in ("NONE", account)]
        head = header("A: b", *asked)
    verb, sizes = (b"HMSG", b"%d %d" % (len(head), len(head))) if head else (b"RMSG", b"0")
    return b"%s %s service %s\r\n%s\r\n" % (verb, (system or account).encode(), sizes, head)


def test_an_account_that_floods_loses_its_own_requests(plane: DataPlane, connect: Connect) -> None:
    served = Served(plane, "A", "B")
    link = connect(plane)
    hand_in(plane, link, message("A"), FLOOD)
    hand_in(plane, link, message("B"))
    stats = plane.inbox.stats()
    assert (stats["parked"], stats["parkings"]) == (0, 0)
    assert stats["dropped"] == FLOOD - LINK_EVENTS // 2
    events = plane.inbox.drain(4)
    assert b'"B"' in [event[4][ACCOUNT_PART] for event in events], "they take turns"  # type: ignore[index]
    served.close()


def test_requests_to_the_system_account_are_charged_to_the_requesters(
    plane: DataPlane, connect: Connect
) -> None:
    served = Served(plane, "S")
    served.accounts[0].is_system = True
    link = connect(plane)
    hand_in(plane, link, message("A", system="S"), FLOOD)
    hand_in(plane, link, message("B", system="S"))
    hand_in(plane, link, message("S"))
    assert plane.inbox.stats()["dropped"] == FLOOD - LINK_EVENTS // 2
    plane.run()
    assert len(plane.take(EV_MSG)) == LINK_EVENTS // 2 + 2
    served.close()


def test_traces_are_charged_to_the_account(plane: DataPlane, connect: Connect) -> None:
    served = Served(plane, "A", "B")
    link = connect(plane)
    head = header("Nats-Trace-Dest: t")
    hand_in(plane, link, message("A", head).replace(b"service", b"nobody"), FLOOD)
    hand_in(plane, link, message("B", head).replace(b"service", b"nobody"))
    assert plane.inbox.stats()["parkings"] == 0
    plane.run()
    traces = plane.take(EV_MSG_TRACE)
    assert len(traces) <= LINK_EVENTS // 2 + 1
    assert sum(b'"B"' in data for *_, data in traces if isinstance(data, bytes)) == 1
    assert {source for _, source, *_ in traces} == {link.session}
    served.close()


def test_accounts_share_what_a_link_may_cause(plane: DataPlane, connect: Connect) -> None:
    names = [f"A{number}" for number in range(SHARES + 10)]
    served = Served(plane, *names, "LAST")
    link = connect(plane)
    for name in names[:3]:
        hand_in(plane, link, message(name), FLOOD)
    for name in names[3:]:
        hand_in(plane, link, message(name), 2)
    hand_in(plane, link, message("LAST"))
    assert plane.inbox.stats()["events"] <= LINK_EVENTS
    plane.run()
    got = Counter(event[4][ACCOUNT_PART].decode() for event in plane.take(EV_MSG))  # type: ignore[index]
    assert got['"A0"'] == LINK_EVENTS // 2
    assert got['"A1"'] == LINK_EVENTS // 4
    assert all(got[f'"{name}"'] for name in [*names, "LAST"])
    hand_in(plane, link, message("LAST"), FLOOD)
    plane.run()
    assert len(plane.take(EV_MSG)) == LINK_EVENTS // 2, "what was taken is free again"
    served.close()


def test_a_link_that_goes_leaves_its_events(plane: DataPlane, connect: Connect) -> None:
    served = Served(plane, "A")
    link = connect(plane)
    hand_in(plane, link, message("A"), 10)
    link.socket.close()
    del link
    for _ in range(10):
        for poller in plane.pollers:
            poller.run_once(0)
    plane.run()
    assert len(plane.take(EV_MSG)) == 10
    served.close()


def test_a_server_that_ends_drops_its_events() -> None:
    plane = DataPlane()
    served = Served(plane, "A")
    link = plane.route()
    hand_in(plane, link, message("A"), 10)
    link.socket.close()
    while any(poller.run_once(0) for poller in plane.pollers):
        pass
    for poller in plane.pollers:
        poller.close()
    inbox = plane.inbox
    assert len(inbox) >= 10
    del plane, served, link
    gc.collect()
    assert inbox.stats()["parked"] == 0
