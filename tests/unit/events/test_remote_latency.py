"""Halves of measurements that two servers exchange."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gnats.events import remote_latency
from gnats.events.remote_latency import RemoteLatency, Waiting
from gnats.log.logger import SilentLogger

REPLY = "_R_.abcdef.ghijkl.HHHHHHHH.T"


class Client:
    def __init__(self) -> None:
        self.heard: Callable[[Any], None] | None = None
        self.subject = b""

    def subscribe(self, subject: bytes, handle: Callable[[Any], None]) -> None:
        self.subject, self.heard = subject, handle

    def half(self, from_server: bool = True, **changes: Any) -> None:
        """Have a half come from another server."""
        values = {
            "account": "A",
            "req_id": REPLY,
            "m2": {"service": 30, "responder": {"rtt": 5, "user": "u"}},
        }
        self.say(json.dumps(values | changes).encode(), from_server)

    def say(self, payload: bytes, from_server: bool = True) -> None:
        assert self.heard
        self.heard(SimpleNamespace(payload=payload, from_server=from_server, subject=self.subject))


class Halves:
    """A RemoteLatency whose other half the test plays."""

    def __init__(self) -> None:
        self.client = Client()
        self.published: list[dict[str, object]] = []
        self.remote = RemoteLatency({"A": None}, {}, SilentLogger(), server=dict)  # type: ignore[arg-type]
        self.remote.start("S", self.client)  # type: ignore[arg-type]

    def first(self, account: str = "A", reply: str = REPLY) -> None:
        report: dict[str, object] = {"service": 100, "system": 0, "total": 120}
        self.remote.first_half(account, reply, (report, self.published.append), 60.0)


@pytest.fixture
async def halves() -> Any:
    halves = Halves()
    yield halves
    halves.remote.close()


BOTH = {"service": 30, "system": 65, "total": 120, "responder": {"rtt": 5, "user": "u"}}


async def test_either_half_may_come_first(halves: Halves) -> None:
    halves.first()
    halves.client.half()
    assert halves.published == [BOTH]
    halves.client.half()
    assert halves.published == [BOTH]
    halves.first()
    assert halves.published == [BOTH, BOTH]


async def test_the_reply_may_be_a_mapped_one(halves: Halves) -> None:
    halves.first()
    halves.client.half(req_id=f"_GR_.123456.123456.{REPLY}")
    assert halves.published == [BOTH]


async def test_only_other_servers_have_halves(halves: Halves) -> None:
    halves.first()
    halves.client.half(from_server=False)
    halves.client.half(account="B")
    halves.client.half(req_id="other")
    assert not halves.published


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"account":1}',
        b'{"account":"A","m2":7}',
        b'{"account":"A","m2":{"service":"x"}}',
    ],
)
async def test_nonsense_changes_nothing(halves: Halves, payload: bytes) -> None:
    halves.client.say(payload)
    halves.first()
    halves.client.half()
    assert halves.published == [BOTH]


@pytest.mark.parametrize("responder", [None, 5, "x", [], {}, {"rtt": "x"}, {"rtt": -(2**63)}, {"rtt": 2**62}])
async def test_a_strange_responder_harms_nobody(halves: Halves, responder: object) -> None:
    halves.first()
    halves.client.half(m2={"service": -5, "responder": responder})
    (report,) = halves.published
    assert report["service"] == 0
    assert isinstance(report["system"], int) and report["system"] >= 0


async def test_the_oldest_go_when_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_latency, "MOST", 3)
    waiting: Waiting[int, str] = Waiting()
    for number in (1, 2, 3, 1, 4):
        waiting.add(number, str(number), 60.0)
    assert [waiting.take(number) for number in (2, 3, 1, 4, 4)] == [None, "3", "1", "4", None]
    waiting.close()


async def test_ends_of_what_has_gone_are_cleared_away() -> None:
    """Their number does not grow with the time that entries may wait."""
    waiting: Waiting[int, int] = Waiting()
    try:
        for number in range(20 * remote_latency.GONE):
            waiting.add(number, number, 3600.0)
            assert waiting.take(number) == number
        assert len(waiting) == 0
        assert len(waiting._ends) <= remote_latency.GONE + 1
    finally:
        waiting.close()
