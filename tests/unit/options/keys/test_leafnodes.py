"""The leafnodes block and its remotes."""

import pytest

from gnats.conf import Token, parse
from gnats.go.url import URL
from gnats.nkeys.nkeys import Prefix, encode, encode_seed
from gnats.options.keys.leafnodes import leafnodes
from gnats.options.keys.values import ConfigError, Problems
from gnats.options.values.auth import User
from gnats.options.values.cluster import Compression
from gnats.options.values.leafnodes import LeafNodeOptions, ProxyOptions, RemoteLeafOptions

from .reading import HERE, options

pytestmark = pytest.mark.timeout(60)

USER = encode(Prefix.USER, b"u" * 32)
SEED = encode_seed(Prefix.USER, b"s" * 32)
A = URL("nats", host="a")


def read(text: str) -> tuple[LeafNodeOptions, Problems]:
    """Read the text between the braces."""
    problems = Problems()
    return leafnodes("leafnodes", Token(parse(text, HERE).root, HERE, 1, 0), problems), problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("listen: 127.0.0.1:7422", LeafNodeOptions(host="127.0.0.1", port=7422)),
        ("listen: 7422", LeafNodeOptions(port=7422)),
        ("host: a, port: -1", LeafNodeOptions(host="a", port=-1)),
        ("net: a", LeafNodeOptions(host="a")),
        (
            "authorization { user: u, password: p, account: A, timeout: 3 }",
            LeafNodeOptions(username="u", password="p", account="A", auth_timeout=3.0),
        ),
        (f"authorization {{ nkey: {USER} }}", LeafNodeOptions(nkey=USER)),
        (
            "authorization { users: [ {user: u, pass: p, account: A}, {username: v, password: q}, {} ] }",
            LeafNodeOptions(users=(User("u", "p", account="A"), User("v", "q"), User(""))),
        ),
        ("advertise: a:1", LeafNodeOptions(advertise="a:1")),
        ("leafnode_advertise: a:1", LeafNodeOptions(advertise="a:1")),
        ("no_advertise: true", LeafNodeOptions(no_advertise=True)),
        ("reconnect: 5s", LeafNodeOptions(reconnect_interval=5.0)),
        ("reconnect_delay: 5s", LeafNodeOptions(reconnect_interval=5.0)),
        ("reconnect_interval: 5s", LeafNodeOptions(reconnect_interval=5.0)),
        ("dial_timeout: 5s", LeafNodeOptions(dial_timeout=5.0)),
        ("min_version: 2.9.0", LeafNodeOptions(min_version="2.9.0")),
        ("minimum_version: 2.9.0", LeafNodeOptions(min_version="2.9.0")),
        ("compression: s2_best", LeafNodeOptions(compression=Compression("s2_best"))),
        ("compression: off", LeafNodeOptions(compression=Compression("off"))),
        ("isolate_leafnode_interest: true", LeafNodeOptions(isolate_leafnode_interest=True)),
        ("isolate: true", LeafNodeOptions(isolate_leafnode_interest=True)),
        ("write_deadline: 3s", LeafNodeOptions(write_deadline=3.0)),
        ("write_timeout: retry", LeafNodeOptions(write_timeout="retry")),
        ("remotes: []", LeafNodeOptions()),
    ],
)
def test_each_key_sets_its_option(text: str, expected: LeafNodeOptions) -> None:
    found, problems = read(text)
    assert found == expected
    assert (problems.errors, problems.warnings) == ([], [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("url: 'nats://a'", RemoteLeafOptions((A,))),
        (
            "urls: ['nats://u:p@a:1', ' tls://b ']",
            RemoteLeafOptions((URL("nats", "u", "p", "a:1"), URL("tls", host="b"))),
        ),
        ("url: 'nats://a', account: A", RemoteLeafOptions((A,), account="A")),
        ("url: 'nats://a', local: A", RemoteLeafOptions((A,), account="A")),
        ("url: 'nats://a', creds: c", RemoteLeafOptions((A,), credentials="c")),
        ("url: 'nats://a', credentials: '~/x/../c'", RemoteLeafOptions((A,), credentials="/home/me/c")),
        ("url: 'nats://a', creds: '$THERE/${THERE}$'", RemoteLeafOptions((A,), credentials="here/here$")),
        ("url: 'nats://a', creds: '${NOWHERE}c'", RemoteLeafOptions((A,), credentials="c")),
        (f"url: 'nats://a', nkey: {SEED}", RemoteLeafOptions((A,), nkey=SEED)),
        (f"url: 'nats://a', seed: {SEED}", RemoteLeafOptions((A,), nkey=SEED)),
        ("url: 'nats://a', hub: true", RemoteLeafOptions((A,), hub=True)),
        ("url: 'nats://a', deny_import: a", RemoteLeafOptions((A,), deny_imports=("a",))),
        ("url: 'nats://a', deny_exports: [a, b]", RemoteLeafOptions((A,), deny_exports=("a", "b"))),
        ("url: 'nats://a', dont_randomize: true", RemoteLeafOptions((A,), no_randomize=True)),
        ("url: 'nats://a', first_info_timeout: 5s", RemoteLeafOptions((A,), first_info_timeout=5.0)),
        ("url: 'nats://a', dial_timeout: 5s", RemoteLeafOptions((A,), dial_timeout=5.0)),
        ("url: 'nats://a', compression: true", RemoteLeafOptions((A,), compression=Compression("s2_auto"))),
        ("url: 'nats://a', ws_compress: true", RemoteLeafOptions((A,), websocket_compression=True)),
        ("url: 'nats://a', ws_no_masking: true", RemoteLeafOptions((A,), websocket_no_masking=True)),
        ("url: 'nats://a', isolate: true", RemoteLeafOptions((A,), local_isolation=True)),
        ("url: 'nats://a', request_isolation: true", RemoteLeafOptions((A,), request_isolation=True)),
        ("url: 'nats://a', disabled: true", RemoteLeafOptions((A,), disabled=True)),
        (
            "url: 'nats://a', ignore_discovered_servers: true",
            RemoteLeafOptions((A,), ignore_discovered_servers=True),
        ),
    ],
)
def test_each_key_of_a_remote_sets_its_option(
    text: str, expected: RemoteLeafOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("THERE", "here")
    monkeypatch.delenv("NOWHERE", raising=False)
    found, problems = read(f"remotes: [ {{ {text} }} ]")
    assert found.remotes == (expected,)
    assert (problems.errors, problems.warnings) == ([], [])


def test_compression_that_is_switched_on_follows_the_round_trip_time() -> None:
    """Unlike that of routes."""
    for text in "compression: true", "compression: enabled", "compression: on":
        found, _ = read(text)
        assert found.baseline(()).compression == Compression("s2_auto", (0.010, 0.050, 0.100))


def test_a_proxy() -> None:
    found, problems = read(
        "remotes: [ {url: 'nats://a', proxy { url: 'http://p:1', username: u, password: w, timeout: 5 }} ]"
    )
    assert found.remotes[0].proxy == ProxyOptions("http://p:1", "u", "w", 5.0)
    slow, unused = problems.warnings
    assert 'invalid use of field "proxy timeout": proxy timeout should be converted to a duration' in slow
    assert "proxy configuration will be ignored" in unused


def test_tls_verifies_leaf_nodes_only_if_it_says_so() -> None:
    for text, verify in ("timeout: 5", False), ("verify: true", True), ("verify_and_map: true", True):
        found, _ = read(f"tls {{ {text} }}, remotes: [ {{ url: 'nats://a', tls {{ {text} }} }} ]")
        assert found.tls
        assert found.tls == found.remotes[0].tls
        assert found.tls.verify is verify


@pytest.mark.parametrize("home", ["", None])
def test_a_home_that_is_unknown(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    if home is not None:
        monkeypatch.setenv("HOME", home)
    _, problems = read("remotes: [ {url: 'nats://a', creds: '~/c'} ]")
    assert "HOME is not set" in problems.errors[0]


def test_what_is_nearly_a_seed_is_not_shown() -> None:
    _, problems = read(f"remotes: [ {{url: 'nats://a', nkey: {SEED}X}} ]")
    assert "not a valid seed" in problems.errors[0]
    assert SEED not in problems.errors[0]


def test_a_remote_with_an_error_does_not_hide_others() -> None:
    found, problems = read(
        "remotes: [ {url: 'nats://a', zz: 1}, {url: 'nats://a', yy: 1}, {url: 'nats://b'} ]"
    )
    assert len(found.remotes) == 1
    assert ["zz" in problems.errors[0], "yy" in problems.errors[1]] == [True, True]
    assert len(problems.errors) == 2


def test_it_is_a_block() -> None:
    with pytest.raises(ConfigError, match="leaf takes a block"):
        leafnodes("leaf", Token("x", HERE, 1, 0), Problems())


def test_the_defaults_are_those_of_a_server() -> None:
    assert options("leafnodes { port: -1 }").baseline().leafnodes.compression.mode == "s2_auto"
    options("leafnodes { no_advertise: true }").baseline()
