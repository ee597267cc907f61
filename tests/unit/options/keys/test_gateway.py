"""The gateway block and the clusters in it."""

import pytest

from gnats.conf import Token, parse
from gnats.errors import OptionError
from gnats.go.url import URL
from gnats.options.keys.gateway import gateway
from gnats.options.keys.values import ConfigError, Problems
from gnats.options.values.gateway import GatewayOptions, RemoteGatewayOptions
from gnats.options.values.tls import TLSOptions

from .reading import HERE, options

pytestmark = pytest.mark.timeout(60)

A, B = URL("nats", host="a"), URL("tls", "u", "p", "b:1")


def read(text: str) -> tuple[GatewayOptions, Problems]:
    """Read the text between the braces."""
    problems = Problems()
    return gateway("gateway", Token(parse(text, HERE).root, HERE, 1, 0), problems), problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: G", GatewayOptions(name="G")),
        ("listen: 127.0.0.1:7522", GatewayOptions(host="127.0.0.1", port=7522)),
        ("listen: 7522", GatewayOptions(port=7522)),
        ("host: a, port: -1", GatewayOptions(host="a", port=-1)),
        ("net: a", GatewayOptions(host="a")),
        (
            "authorization { user: u, password: p, timeout: 3 }",
            GatewayOptions(username="u", password="p", auth_timeout=3.0),
        ),
        ("tls { timeout: 3 }", GatewayOptions(tls=TLSOptions(timeout=3.0, verify=True))),
        ("advertise: a:1", GatewayOptions(advertise="a:1")),
        ("connect_retries: 5", GatewayOptions(connect_retries=5)),
        ("connect_backoff: true", GatewayOptions(connect_backoff=True)),
        ("reject_unknown: true", GatewayOptions(reject_unknown=True)),
        ("reject_unknown_cluster: true", GatewayOptions(reject_unknown=True)),
        ("write_deadline: 3s", GatewayOptions(write_deadline=3.0)),
        ("write_timeout: retry", GatewayOptions(write_timeout="retry")),
        ("gateways: []", GatewayOptions()),
    ],
)
def test_each_key_sets_its_option(text: str, expected: GatewayOptions) -> None:
    found, problems = read(text)
    assert found == expected
    assert (problems.errors, problems.warnings) == ([], [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", RemoteGatewayOptions()),
        ("name: A", RemoteGatewayOptions("A")),
        ("url: ' nats://a '", RemoteGatewayOptions(urls=(A,))),
        ("urls: ['nats://a', 'tls://u:p@b:1']", RemoteGatewayOptions(urls=(A, B))),
        ("url: 'nats://a', urls: ['tls://u:p@b:1']", RemoteGatewayOptions(urls=(B, A))),
        ("tls {}", RemoteGatewayOptions(tls=TLSOptions(timeout=0.0, verify=True))),
        ("tls { TIMEOUT: 3 }", RemoteGatewayOptions(tls=TLSOptions(timeout=3.0, verify=True))),
    ],
)
def test_each_key_of_a_remote_sets_its_option(text: str, expected: RemoteGatewayOptions) -> None:
    found, problems = read(f"name: G, gateways: [ {{ {text} }} ]")
    assert found.gateways == (expected,)
    assert (problems.errors, problems.warnings) == ([], [])


def test_a_remote_with_an_error_does_not_hide_others() -> None:
    found, problems = read("name: G, gateways: [ {name: A, zz: 1}, 'x', {name: B, yy: 1}, {name: C} ]")
    assert found.gateways[-1] == RemoteGatewayOptions("C")
    assert [word in error for word, error in zip(("zz", "x", "yy"), problems.errors, strict=True)] == [
        True,
        True,
        True,
    ]


def test_what_has_no_effect_is_warned_of() -> None:
    _, problems = read("gateways: [ {name: A, url: 'nats://a'} ]")
    assert "gateways without a name and a port to listen on are not dialled" in problems.warnings[0]
    _, problems = read("authorization { user: a, permissions { publish: x } }")
    assert "a gateway has no permissions" in problems.warnings[0]


def test_it_is_a_block() -> None:
    with pytest.raises(ConfigError, match="gateway takes a block"):
        gateway("gateway", Token("x", HERE, 1, 0), Problems())


def test_jetstream_beside_a_gateway_needs_routes() -> None:
    with pytest.raises(OptionError, match="JetStream cluster requires configured routes"):
        options("gateway { name: G, port: -1 }\njetstream: true").baseline()
    assert options("gateway { name: G, port: -1 }").baseline().cluster.name == "G"
