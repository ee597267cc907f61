"""The URLs that clients are told."""

from __future__ import annotations

import pytest

from gnats.cluster import client_urls
from gnats.cluster.client_urls import ClientURLs, own_urls
from gnats.options.options import Options

pytestmark = pytest.mark.timeout(60)


def test_urls_are_counted_by_server() -> None:
    urls = ClientURLs()
    urls.own = ("me:1",)
    assert urls.shown == ()
    assert urls.add(["a:1", "b:1"])
    assert urls.shown == ("me:1", "a:1", "b:1")
    assert not urls.add(["a:1"])
    assert not urls.remove(["a:1"])
    assert urls.remove(["a:1", "b:1"])
    assert not urls.remove(["a:1"])
    assert urls.shown == ("me:1",)


def test_servers_without_urls_change_nothing() -> None:
    urls = ClientURLs()
    urls.own = ("me:1",)
    assert not urls.add([])
    assert urls.shown == ()


def test_in_lame_duck_mode_clients_see_the_others_only() -> None:
    urls = ClientURLs()
    urls.own = ("me:1",)
    urls.add(["a:1"])
    urls.lame_duck()
    assert urls.shown == ("a:1",)
    assert urls.add(["b:1"])
    assert urls.shown == ("a:1", "b:1")


def test_hidden_urls_are_shown_again_as_they_are_then() -> None:
    urls = ClientURLs()
    urls.own = ("me:1",)
    assert not urls.hide(hidden=True)
    assert not urls.add(["a:1"])
    assert urls.shown == ()
    assert urls.hide(hidden=False)
    assert not urls.hide(hidden=False)
    assert urls.shown == ("me:1", "a:1")
    assert urls.hide(hidden=True)
    assert not urls.remove(["a:1"])
    assert urls.hide(hidden=False)
    assert urls.shown == ("me:1",)


def test_own_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = ["127.0.0.1", "10.0.0.1", "::1", "fe80::1", "2001:db8::1", "169.254.1.1", "224.0.0.1"]
    monkeypatch.setattr(client_urls, "interface_addresses", lambda: addresses)
    assert own_urls(Options(host="0.0.0.0"), 4222) == ("10.0.0.1:4222", "[2001:db8::1]:4222")
    assert own_urls(Options(host="::"), 1) == ("10.0.0.1:1", "[2001:db8::1]:1")
    assert own_urls(Options(host="127.0.0.1"), 4222) == ("127.0.0.1:4222",)
    assert own_urls(Options(host="0.0.0.0", client_advertise="h"), 4222) == ("h:4222",)
    assert own_urls(Options(host="0.0.0.0", client_advertise="h:5"), 4222) == ("h:5",)
