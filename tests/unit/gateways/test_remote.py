"""The URLs of another cluster: bounds, and addresses that nobody has."""

from __future__ import annotations

import pytest

from gnats.gateways.remote import MOST_URLS, Remote
from gnats.go.url import parse_url
from gnats.options.values.gateway import RemoteGatewayOptions
from gnats.runtime.dial import dial

pytestmark = pytest.mark.timeout(60)


def test_urls_that_others_tell_of_are_bounded() -> None:
    """Those of the configuration stay."""
    remote = Remote(
        "F", RemoteGatewayOptions(name="F", urls=(parse_url("nats://a:1"), parse_url("nats://b:1")))
    )
    remote.add(f"h{number}:1" for number in range(2 * MOST_URLS))
    assert remote.hosts[:2] == ["a:1", "b:1"]
    assert len(remote.hosts) == 2 + MOST_URLS
    remote.replace_discovered(["c:1"])
    assert remote.hosts == ["a:1", "b:1", "c:1"]


@pytest.mark.parametrize("host", ["::1%a..b", "127.0.0.1%a..b", "::1%" + "x" * 70])
async def test_an_address_that_nobody_has_is_an_error_like_others(host: str) -> None:
    with pytest.raises(OSError, match=r"^dial tcp "):
        await dial((host, 1), 5.0)
