"""Accounts whose names no line can hold: routes and gateways leave them out, and go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.dataplane import DataPlane, Peer


@pytest.fixture
def plane() -> Iterator[DataPlane]:
    with DataPlane() as made:
        yield made


@pytest.mark.parametrize("name", ["A B", "A\tB", "A\r\nRS+ OTHER bar", "A\n", " ", ""])
@pytest.mark.parametrize("link", [DataPlane.route, DataPlane.inbound], ids=["route", "gateway"])
def test_interest_is_not_announced(plane: DataPlane, link: Callable[[DataPlane], Peer], name: str) -> None:
    before, after = plane.account(name), plane.account("LAST")
    client = plane.client(before)
    client.say(b"SUB foo 1\r\nSUB q g 2\r\n")
    peer = link(plane)
    client.say(b"SUB bar 3\r\nUNSUB 1\r\n")
    plane.client(after).say(b"SUB last 1\r\n")
    lines = [line for line in peer.hear().splitlines() if not line.startswith(b"INFO")]
    assert lines == [b"RS+ LAST last"]


def test_a_route_of_one_account_names_none(plane: DataPlane) -> None:
    plane.client(plane.account("A B")).say(b"SUB foo 1\r\n")
    assert plane.route(account=b"A B").hear() == b"RS+ foo\r\n"
