"""The table of gateway connections: one to each cluster, any number from it, the nearest first."""

from __future__ import annotations

from typing import Any, cast

from gnats.gateways.gateway import Gateway
from gnats.gateways.remote import Remote
from gnats.gateways.table import GatewayTable

from .fakes import Session


def gateway(name: str, *, outbound: bool = True, rtt: int = 0) -> Gateway:
    made = Gateway(cast("Any", Session(rtt)), "127.0.0.1", 1, Remote(name) if outbound else None)
    made.name = name
    return made


def test_one_connection_goes_to_a_cluster() -> None:
    table = GatewayTable()
    first, second = gateway("F"), gateway("F")
    assert (table.add(first), table.add(second)) == (True, False)
    assert (table.to("F"), table.to("G"), list(table)) == (first, None, [first])
    assert (table.remove(second), table.remove(first), table.remove(first)) == (False, True, False)
    assert (table.to("F"), len(table)) == (None, 0)


def test_any_number_comes_from_a_cluster() -> None:
    table = GatewayTable()
    many = [gateway(name, outbound=False) for name in ("F", "F", "K")]
    assert all(map(table.add, many))
    assert (table.of("F"), table.inbound, len(table)) == (many[:2], many, 3)
    table.remove(many[0])
    assert (table.of("F"), table.to("F")) == (many[1:2], None)


def test_the_nearest_cluster_comes_first() -> None:
    table = GatewayTable()
    for each in (
        gateway("new"),
        gateway("far", rtt=900),
        gateway("near", rtt=5),
        gateway("in", outbound=False),
    ):
        table.add(each)
    assert [each.name for each in table.nearest_first()] == ["near", "far", "new"]
