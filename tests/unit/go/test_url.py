"""URLs as Go reads them."""

import pytest

from gnats.errors import OptionError
from gnats.go.url import URL, parse_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("nats://a:1", URL("nats", host="a:1")),
        ("NATS://a", URL("nats", host="a")),
        ("nats-route://u:p@a:1/x?y#z", URL("nats-route", "u", "p", "a:1", "/x")),
        ("tls://u@a:1", URL("tls", "u", None, "a:1")),
        ("tls://u:@a:1", URL("tls", "u", "", "a:1")),
        ("tls://:p@a:1", URL("tls", "", "p", "a:1")),
        ("x://u%40v:p%3a%2F@a:1", URL("x", "u@v", "p:/", "a:1")),
        ("x://u@v:p@a:1", URL("x", "u@v", "p", "a:1")),
        ("x://[::1]:6222", URL("x", host="[::1]:6222")),
        ("x://[fe80::1%25eth0]:6222", URL("x", host="[fe80::1%eth0]:6222")),
        ("x://::1:1", URL("x", host="::1:1")),
        ("x://[::1]", URL("x", host="[::1]")),
        ("x://a:", URL("x", host="a:")),
        ("x://a:99999", URL("x", host="a:99999")),
        ("x://%61:1", URL("x", host="a:1")),
        ("//a:1", URL("", host="a:1")),
        ("x:", URL("x")),
        ("localhost:6222", URL("localhost", opaque="6222")),
        ("x:///p", URL("x", path="/p")),
        ("x:/p", URL("x", path="/p")),
        ("a/b:c", URL(path="a/b:c")),
        ("", URL()),
    ],
)
def test_parts(text: str, url: URL) -> None:
    assert parse_url(text) == url


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("a.example:1", "a.example"),
        ("a.example", "a.example"),
        ("10.0.0.1:1", "10.0.0.1"),
        ("[::1]:1", "::1"),
        ("[::1]", "::1"),
        ("[fe80::1%eth0]:1", "fe80::1%eth0"),
        ("", ""),
    ],
)
def test_a_host_without_its_port(host: str, name: str) -> None:
    assert URL("nats", host=host).hostname() == name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nats://a:1", "nats://a:1"),
        ("nats-route://u:p@a:1/", "nats-route://u:xxxxx@a:1/"),
        ("x://u@[::1]:1/y?z", "x://u@[::1]:1/y"),
        ("x://u:@a", "x://u:xxxxx@a"),
        ("//u:p@a:1", "//u:xxxxx@a:1"),
        ("a", "a"),
        ("/a", "/a"),
        ("x:/a", "x:/a"),
        ("localhost:1", "localhost:1"),
        ("x:", "x:"),
    ],
)
def test_the_log_shows_no_password(text: str, shown: str) -> None:
    assert parse_url(text).redacted() == shown


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("127.0.0.1:6222", "first path segment in URL cannot contain colon"),
        (":6222", "missing protocol scheme"),
        ("x://a\n:1", "invalid control character in URL"),
        ("x://a:b", "invalid port :b after host"),
        ("x://a:-1", "invalid port :-1 after host"),
        ("x://[::1]a:1", "invalid port a:1 after host"),
        ("x://[::1:1", "missing ']' in host"),
        ("x://a b:1", "invalid character in host name"),
        ("x://u p@a:1", "invalid userinfo"),
        ("x://u%zz@a:1", "invalid URL escape"),
        ("x://a/%zz", "invalid URL escape"),
        ("a%zz", "invalid URL escape"),
    ],
)
def test_what_is_not_a_url(text: str, why: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse_url(text)
    assert str(raised.value) == why


def test_an_address_has_a_host_and_a_port() -> None:
    assert parse_url("x://[::1]:6222").address() == ("::1", "6222")
    with pytest.raises(OptionError, match="missing port in address"):
        parse_url("x://a").address()


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(parse_url("x://u:secret@a:1"))
