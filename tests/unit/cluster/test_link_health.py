"""The health of links: traffic by remote server, slow ones, missing ones, and what the log says of them."""

from __future__ import annotations

from typing import Any

import pytest

from gnats.accounts.account import TRAFFIC
from gnats.cluster import link_health as module
from gnats.cluster.link_health import Configured, LinkHealth
from gnats.connection.closed_state import ClosedState

from .fakes import Log

pytestmark = pytest.mark.timeout(60)

GATE = 100


class Link:
    """A link whose counters a test sets; it is its own session."""

    def __init__(self, name: str, **counters: int) -> None:
        self.trace_name = name
        self.counters = dict.fromkeys(TRAFFIC, 0) | {
            "pending_bytes": 0,
            "rtt": 0,
            "subscriptions": 0,
            "late": 0,
        }
        self.counters |= {"gate": GATE} | counters

    @property
    def session(self) -> Any:
        return self

    def snapshot(self) -> dict[str, int]:
        return self.counters


class Harness:
    """A LinkHealth with its links, the routes of its configuration, and its log."""

    def __init__(self, *links: Link, kind: str = "route") -> None:
        self.links = list(links)
        self.routes: list[Configured] = []
        self.log = Log()
        self.health = LinkHealth(kind, self.log, lambda: self.links, lambda: self.routes)

    def end(self, link: Link, reason: ClosedState = ClosedState.READ_ERROR) -> None:
        self.links.remove(link)
        self.health.closed(link, link.counters, reason)

    def slow(self) -> list[bool]:
        return [peer.slow for peer in self.health.check()]


def test_connections_to_a_server_are_summed() -> None:
    harness = Harness(
        Link("b", in_msgs=1, pending_bytes=5, rtt=7, subscriptions=2),
        Link("b", in_msgs=2, pending_bytes=6, rtt=3, subscriptions=4),
        Link("a", out_bytes=9),
        Link(""),
    )
    first, second = harness.health.check()
    assert (first.name, first.connections, first.traffic["out_bytes"]) == ("a", 1, 9)
    assert (second.name, second.connections, second.traffic["in_msgs"]) == ("b", 2, 3)
    assert (second.pending, second.rtt, second.subscriptions) == (11, 7, 6)


def test_counters_outlive_connections() -> None:
    link = Link("a", in_msgs=4)
    harness = Harness(link)
    harness.end(link, ClosedState.STALE_CONNECTION)
    harness.links = [Link("a", in_msgs=1)]
    [peer] = harness.health.check()
    assert (peer.connections, peer.traffic["in_msgs"], peer.stale) == (1, 5, 1)
    harness.links = []
    [peer] = harness.health.check()
    assert (peer.connections, peer.traffic["in_msgs"]) == (0, 4)


def test_a_connection_that_was_one_too_many_is_no_error() -> None:
    links = [Link("a") for _ in range(3)]
    harness = Harness(*links)
    harness.end(links[0], ClosedState.DUPLICATE_ROUTE)
    assert [peer.error for peer in harness.health.check()] == [""]
    harness.end(links[1], ClosedState.STALE_CONNECTION)
    harness.end(links[2], ClosedState.DUPLICATE_ROUTE)
    assert [peer.error for peer in harness.health.check()] == ["Stale Connection"]


def test_a_link_over_its_gate_is_named_once() -> None:
    link = Link("a", pending_bytes=GATE)
    harness = Harness(link)
    assert harness.slow() == [False]
    link.counters["pending_bytes"] = GATE + 1
    assert [harness.slow(), harness.slow()] == [[True], [True]]
    assert harness.log.lines == ['Route to "a" is slow: 101 bytes are pending']
    link.counters["pending_bytes"] = GATE // 2 + 1  # it may be over the gate again at once
    assert harness.slow() == [True]
    link.counters["pending_bytes"] = GATE // 2
    assert harness.slow() == [False]
    assert harness.log.lines[1:] == ['Route to "a" is not slow any more']
    assert harness.health.check()[0].times_slow == 1


def test_a_link_that_misses_a_write_deadline_is_slow_until_it_has_caught_up() -> None:
    link = Link("a", late=1, slow=1)
    harness = Harness(link, kind="leafnode")
    assert harness.slow() == [True]
    link.counters["slow"] = 2  # it misses another one
    assert harness.slow() == [True]
    link.counters["late"] = 0
    assert harness.slow() == [False]
    assert harness.log.lines == [
        'Leafnode connection to "a" is slow: 0 bytes are pending',
        'Leafnode connection to "a" is not slow any more',
    ]


def test_a_deadline_that_was_missed_between_two_checks_is_named() -> None:
    link = Link("a")
    harness = Harness(link)
    assert harness.slow() == [False]
    link.counters["slow"] = 1
    assert [harness.slow(), harness.slow()] == [[True], [False]]


@pytest.mark.parametrize(
    "reason", [ClosedState.SLOW_CONSUMER_PENDING_BYTES, ClosedState.SLOW_CONSUMER_WRITE_DEADLINE]
)
def test_a_link_that_is_closed_as_slow_is_named(reason: ClosedState) -> None:
    link = Link("a")
    harness = Harness(link)
    harness.end(link, reason)
    assert harness.log.lines == [f'Route to "a" was slow, and is closed: {reason}']
    [peer] = harness.health.check()
    assert (peer.slow, peer.times_slow) == (False, 1)


def test_a_slow_link_that_is_closed_counts_once() -> None:
    link = Link("a", late=1, slow=1)
    harness = Harness(link)
    assert harness.slow() == [True]
    harness.end(link, ClosedState.SLOW_CONSUMER_WRITE_DEADLINE)
    harness.links = [Link("a")]
    [peer] = harness.health.check()
    assert (peer.slow, peer.times_slow) == (False, 1)


def test_of_the_servers_without_connections_only_some_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PEERS", 3)
    here = Link("here")
    harness = Harness(here)
    harness.health.check()
    for number in range(9):
        harness.links.append(link := Link(f"l{number}"))
        harness.end(link)
    assert [peer.name for peer in harness.health.check()] == ["here", "l7", "l8"]


ROUTE = Configured("h:1", "")


def test_a_route_is_missing_after_the_second_attempt() -> None:
    harness = Harness()
    harness.routes = [ROUTE, Configured("h:2", "A")]
    harness.health.failed(ROUTE, "refused")
    assert list(harness.health.configured().values()) == [None, None]
    assert harness.log.lines == []
    for error in "refused", "timeout":
        harness.health.failed(ROUTE, error)
    missing = harness.health.configured()[ROUTE]
    assert missing
    assert (missing.attempts, missing.error) == (3, "timeout")
    assert harness.log.lines == ['Route to "h:1" is missing: 2 attempts have failed: refused']
    harness.health.reached(ROUTE)
    harness.health.reached(ROUTE)
    assert harness.health.configured()[ROUTE] is None
    assert harness.log.lines[1:] == ['Route to "h:1" is not missing any more']


def test_a_route_that_a_reload_removes_is_not_missing() -> None:
    harness = Harness()
    harness.routes = [ROUTE]
    for _ in range(2):
        harness.health.failed(ROUTE, "refused")
    harness.routes = []
    assert harness.health.configured() == {}
    harness.routes = [ROUTE]
    assert harness.health.configured() == {ROUTE: None}


def test_an_account_is_named() -> None:
    harness = Harness(kind="leafnode")
    for _ in range(2):
        harness.health.failed(Configured("h:1,h:2", "A"), "refused")
    line = 'Leafnode connection to "h:1,h:2" for account "A" is missing: 2 attempts have failed: refused'
    assert harness.log.lines == [line]
