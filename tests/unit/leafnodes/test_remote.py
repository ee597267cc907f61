"""The URLs of a remote: their order, logins, names for certificates, those that the other server tells of."""

from __future__ import annotations

from gnats.go.url import parse_url
from gnats.leafnodes.remote import Remote
from gnats.options.values.leafnodes import RemoteLeafOptions


def remote(*urls: str) -> Remote:
    return Remote(RemoteLeafOptions(tuple(map(parse_url, urls)), no_randomize=True))


def hosts(found: Remote, count: int) -> list[str]:
    return [found.next_url().host for _ in range(count)]


def test_urls_take_turns() -> None:
    assert hosts(remote("nats://a:1", "nats://b:2", "nats://c:3"), 5) == ["a:1", "b:2", "c:3", "a:1", "b:2"]
    assert hosts(remote("nats://a:1"), 2) == ["a:1", "a:1"]


def test_urls_are_shuffled() -> None:
    urls = tuple(parse_url(f"nats://h{n}:1") for n in range(30))
    orders = {tuple(Remote(RemoteLeafOptions(urls)).urls) for _ in range(3)}
    assert len(orders) > 1
    assert all(sorted(order, key=str) == sorted(urls, key=str) for order in orders)


def test_servers_that_the_other_one_tells_of_come_first() -> None:
    found = remote("nats://u:p@a:1", "nats://b:2")
    assert hosts(found, 1) == ["a:1"]
    assert found.discovered(["b:2", "c:3", "d:4", "[x"]) == ["[x"]
    assert [url.host for url in found.urls] == ["c:3", "d:4", "a:1", "b:2"]
    assert found.urls[0].scheme == "nats-leaf"
    assert found.discovered([]) == []
    assert [url.host for url in found.urls] == ["a:1", "b:2"]


def test_a_login_is_for_urls_without_one() -> None:
    found = remote("nats://b:2", "nats://u:p@a:1")
    assert found.login(found.urls[0]) == ("u", "p", "")
    assert found.login(parse_url("nats://v@c:1")) == ("v", "", "v")
    assert remote("nats://a:1").login(parse_url("nats://a:1")) == ("", "", "")


def test_a_name_is_for_urls_with_an_address() -> None:
    found = remote("nats://127.0.0.1:1", "nats://name:2")
    assert found.host(found.urls[0]) == "name"
    assert found.host(parse_url("nats://other:1")) == "other"
    assert remote("nats://127.0.0.1:1").host(parse_url("nats://[::1]:1")) == "::1"
