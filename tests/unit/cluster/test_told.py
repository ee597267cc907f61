"""What other servers are told of this one's ports: counted URLs, and the address to dial."""

from __future__ import annotations

import pytest

from gnats.cluster import told
from gnats.cluster.told import CountedURLs, ToldAddress
from gnats.options.values.gateway import GatewayOptions


def test_a_url_stays_as_long_as_a_server_has_it() -> None:
    urls = CountedURLs()
    assert [urls.add(url) for url in ("own:1", "b:1", "own:1")] == [True, True, False]
    assert [urls.remove("own:1"), list(urls)] == [False, ["own:1", "b:1"]]
    assert [urls.remove("own:1"), urls.remove("own:1"), list(urls)] == [True, False, ["b:1"]]


ADDRESSES = {
    "the host": (GatewayOptions(host="h"), "h:7"),
    "advertise": (GatewayOptions(host="h", advertise="a:1"), "a:1"),
    "advertise without a port": (GatewayOptions(host="0.0.0.0", advertise="a"), "a:7"),
    "all addresses": (GatewayOptions(host="0.0.0.0"), "192.168.1.2:7"),
}


@pytest.mark.parametrize(("block", "url"), ADDRESSES.values(), ids=ADDRESSES)
def test_the_address(block: GatewayOptions, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "interface_addresses", lambda: ["127.0.0.1", "192.168.1.2", "10.0.0.1"])
    address = ToldAddress(lambda: block)
    assert address.own_url == ""
    address.port = 7
    assert address.own_url == url


def test_without_another_address_all_addresses_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "interface_addresses", lambda: ["127.0.0.1"])
    address = ToldAddress(lambda: GatewayOptions(host="0.0.0.0"))
    address.port = 7
    assert address.own_url == "0.0.0.0:7"
