"""The host whose certificate a server that is dialled must have."""

import pytest

from gnats.cluster.tls_name import TLSName
from gnats.go.url import parse_url

pytestmark = pytest.mark.timeout(60)

ROUTES = [parse_url(text) for text in ("r://10.0.0.1:1", "r://[::1]:1", "r://a.example:1", "r://b.example:1")]
ADDRESS = parse_url("r://10.9.9.9:1/")


def test_without_a_name_an_address_stands_for_itself() -> None:
    name = TLSName()
    name.save(ROUTES[:2])
    assert [name.of(url) for url in ROUTES] == ["10.0.0.1", "::1", "a.example", "b.example"]
    name.refused(ADDRESS)
    assert name.of(ADDRESS) == "10.9.9.9"


def test_the_first_name_stands_for_addresses() -> None:
    name = TLSName()
    name.save(ROUTES)
    assert [name.of(url) for url in ROUTES] == ["a.example", "a.example", "a.example", "b.example"]
    assert name.of(ADDRESS) == "a.example"
    name.save([parse_url("r://c.example:1")])
    assert name.of(ADDRESS) == "a.example"


def test_a_refused_name_is_forgotten() -> None:
    name = TLSName()
    name.save(ROUTES)
    name.refused(ROUTES[3])  # another name
    assert name.of(ADDRESS) == "a.example"
    name.refused(ADDRESS)
    assert name.of(ADDRESS) == "10.9.9.9"
    name.save(ROUTES[3:])
    assert name.of(ADDRESS) == "b.example"
    name.refused(ROUTES[3])  # the name itself
    assert name.of(ADDRESS) == "10.9.9.9"
