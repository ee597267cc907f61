"""Waiting for connections to other clusters, and for their interest."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gnats.gateways.gateway import Gateway
from gnats.gateways.mesh import is_linked, send_mark, wait_for_mark
from gnats.gateways.remote import Remote
from gnats.gateways.table import GatewayTable

from .fakes import Session

pytestmark = pytest.mark.timeout(60)


class Peer(Session):
    """A session that keeps the lines that it is to send."""

    def __init__(self) -> None:
        super().__init__(0)
        self.sent: list[bytes] = []
        self.closed_reason = 0

    def enqueue_proto(self, line: bytes) -> None:
        self.sent.append(line)


class Gateways:
    """As much of a server's gateways as is waited for."""

    def __init__(self) -> None:
        self.table = GatewayTable()
        self.watchers: set[Any] = set()
        self.info = SimpleNamespace(line=lambda **fields: b"%r" % fields)

    def add(self, name: str, remote_id: str, *, outbound: bool, answered: bool = True) -> Gateway:
        gateway = Gateway(cast("Any", Peer()), "127.0.0.1", 1, Remote(name) if outbound else None)
        gateway.name, gateway.remote_id, gateway.answered = name, remote_id, answered
        self.table.add(gateway)
        return gateway


def sent(gateway: Gateway) -> list[bytes]:
    return cast("Any", gateway.session).sent  # type: ignore[no-any-return]


def test_a_server_is_linked_when_each_cluster_has_answered() -> None:
    gateways: Any = Gateways()
    wanted = {"B": ["b0", "b1"], "C": ["c0"]}
    assert is_linked(gateways, {})
    assert not is_linked(gateways, wanted)
    gateways.add("B", "b1", outbound=True)
    assert not is_linked(gateways, wanted)
    late = gateways.add("C", "c0", outbound=True, answered=False)
    assert not is_linked(gateways, wanted)
    late.answered = True
    assert is_linked(gateways, wanted)
    assert not is_linked(gateways, {"B": wanted["B"]})


@pytest.mark.parametrize("outbound", [True, False])
def test_a_connection_to_a_server_that_has_ended_does_not_count(outbound: bool) -> None:
    gateways: Any = Gateways()
    old = gateways.add("B", "old", outbound=outbound)
    wanted = {"B": ["b0"]} if outbound else {}
    assert not is_linked(gateways, wanted)
    gateways.table.remove(old)
    if outbound:
        gateways.add("B", "b0", outbound=True)
    assert is_linked(gateways, wanted)


async def test_a_mark_goes_the_way_of_interest_and_is_waited_for_from_all_clusters() -> None:
    gateways: Any = Gateways()
    out = [gateways.add(name, name, outbound=True) for name in "BC"]
    inward = [gateways.add(name, name, outbound=False) for name in "BBC"]
    send_mark(gateways, "m")
    assert [sent(each) for each in inward] == [[b"{'nonce': 'm'}"]] * 3
    assert [sent(each) for each in out] == [[], []]
    waiting = asyncio.create_task(wait_for_mark(gateways, "m"))
    for each in out:
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        each.mark = "m"
        for watcher in list(gateways.watchers):
            watcher()
    await waiting
    assert not gateways.watchers
