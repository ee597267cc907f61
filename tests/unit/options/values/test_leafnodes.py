"""The options of leaf nodes: defaults and checks."""

from dataclasses import replace

import pytest

from gnats.errors import OptionError
from gnats.go.url import URL, parse_url
from gnats.nkeys.nkeys import Prefix, encode, encode_seed
from gnats.options.options import Options
from gnats.options.values.auth import User
from gnats.options.values.cluster import Compression
from gnats.options.values.leafnodes import NO_WEBSOCKET, LeafNodeOptions, ProxyOptions, RemoteLeafOptions
from gnats.options.values.tls import TLSOptions

pytestmark = pytest.mark.timeout(60)

AUTO = Compression("s2_auto", (0.010, 0.050, 0.100))
A = URL("nats", host="a:1")
ACCOUNTS = {"$G", "A"}


def test_defaults_of_a_server_that_listens() -> None:
    found = LeafNodeOptions(port=-1).baseline(ACCOUNTS)
    assert (found.host, found.auth_timeout, found.compression) == ("127.0.0.1", 2.0, AUTO)
    assert (found.reconnect_interval, found.dial_timeout) == (1.0, 0.0)
    found = LeafNodeOptions(port=-1, tls=TLSOptions(timeout=0)).baseline(ACCOUNTS)
    assert found.tls
    assert (found.tls.timeout, found.auth_timeout) == (2.0, 3.0)


def test_a_server_without_leaf_nodes_has_no_defaults() -> None:
    assert LeafNodeOptions().baseline(ACCOUNTS) == LeafNodeOptions()
    assert not LeafNodeOptions().configured
    assert LeafNodeOptions(reconnect_interval=0).baseline(ACCOUNTS) == LeafNodeOptions()


def test_defaults_of_a_remote() -> None:
    leaf = LeafNodeOptions(remotes=(RemoteLeafOptions((A,), tls=TLSOptions(timeout=-1)),))
    (found,) = leaf.baseline(ACCOUNTS).remotes
    assert found == RemoteLeafOptions(
        (A,), account="$G", tls=TLSOptions(timeout=2.0), compression=AUTO, first_info_timeout=1.0
    )
    assert leaf.configured


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("nats://a", "a:7422"),
        ("nats://a:", "a:7422"),
        ("nats://a:1", "a:1"),
        ("nats://[::1]", "[::1]:7422"),
        ("nats://[::1]:1", "[::1]:1"),
        ("localhost:1", ":7422"),
        ("a", ":7422"),
    ],
)
def test_the_default_port_of_a_url(url: str, host: str) -> None:
    (remote,) = LeafNodeOptions(remotes=(RemoteLeafOptions((parse_url(url),)),)).baseline(ACCOUNTS).remotes
    assert remote.urls[0].host == host


@pytest.mark.parametrize(
    ("leaf", "error"),
    [
        (LeafNodeOptions(port=65536), "leafnodes port 65536 is not a port: -1 (a free one) to 65535"),
        (LeafNodeOptions(port=-2), "leafnodes port -2 is not a port: -1 (a free one) to 65535"),
        (
            LeafNodeOptions(username="a", users=(User("b"),)),
            "can not have a single user/pass and a users array",
        ),
        (LeafNodeOptions(nkey="a", users=(User("b"),)), "can not have a single nkey and a users array"),
        (
            LeafNodeOptions(users=(User("b"), User("b"))),
            'duplicate user "b" detected in leafnode authorization',
        ),
        (
            LeafNodeOptions(users=(User("b", account="X"),)),
            'cannot find local account "X" specified in leafnode authorization',
        ),
        (
            LeafNodeOptions(account="X"),
            'cannot find local account "X" specified in leafnode authorization',
        ),
        (LeafNodeOptions(compression=Compression("x")), 'unsupported compression mode "x"'),
        (
            LeafNodeOptions(port=1, min_version="2.7.0"),
            "the minimum version should be at least 2.8.0",
        ),
        (
            LeafNodeOptions(port=1, min_version="x"),
            "invalid leafnode's minimum version: invalid semver",
        ),
        (LeafNodeOptions(port=1, advertise="a:b"), 'address a:b: "b" is not a port'),
        (LeafNodeOptions(proxy_required=True), "leafnodes proxy_required is not supported yet"),
        (
            LeafNodeOptions(users=(User("a", proxy_required=True),)),
            "leafnodes proxy_required is not supported yet",
        ),
    ],
)
def test_errors(leaf: LeafNodeOptions, error: str) -> None:
    with pytest.raises(OptionError) as raised:
        leaf.baseline(ACCOUNTS)
    assert str(raised.value) == error


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"account": "X"}, 'cannot find local account "X" specified in leafnode remote'),
        (
            {"deny_imports": ("a b",)},
            'invalid deny_imports for remote urls=["nats://a:1"], account="$G": subject "a b" is not a'
            " valid subject",
        ),
        (
            {"deny_exports": ("a..b",), "credentials": "c"},
            'invalid deny_exports for remote urls=["nats://a:1"], account="$G", credentials="c": subject'
            ' "a..b" is not a valid subject',
        ),
        ({"compression": Compression("x")}, 'unsupported compression mode "x"'),
        (
            {"urls": (parse_url("ws://u:p@b:1"), A)},
            "remote leaf node configuration cannot have a mix of websocket and non-websocket urls:"
            ' ["ws://u:xxxxx@b:1" "nats://a:1"]',
        ),
        (
            {"urls": (parse_url("ws://b:1"),)},
            f'remote urls=["ws://b:1"], account="$G": {NO_WEBSOCKET}',
        ),
        (
            {"jetstream_cluster_migrate": True},
            'remote urls=["nats://a:1"], account="$G": jetstream_cluster_migrate is not supported yet',
        ),
        ({"proxy": ProxyOptions("x://a")}, "proxy URL scheme must be http or https, got: x"),
        (
            {"proxy": ProxyOptions("http://a", timeout=-1)},
            "proxy timeout must be >= 0",
        ),
        (
            {"urls": (parse_url("wss://b:1"),), "proxy": ProxyOptions("http://a")},
            "proxy is configured but remote URL wss://b:1 requires TLS and no TLS configuration is"
            " provided: give the remote a tls block",
        ),
    ],
)
def test_errors_of_a_remote(given: dict[str, object], error: str) -> None:
    remote = replace(RemoteLeafOptions((A,)), **given)
    with pytest.raises(OptionError) as raised:
        LeafNodeOptions(remotes=(remote,)).baseline(ACCOUNTS)
    assert str(raised.value) == error


def test_what_a_proxy_is_not_for() -> None:
    proxy = ProxyOptions("https://p")
    ws, wss = parse_url("ws://b:1"), parse_url("wss://b:1")
    for urls, warning in (
        ((), ""),
        ((A,), "proxy configuration will be ignored"),
        ((A, ws), "proxy configuration will only be used for WebSocket URLs"),
        ((ws, wss), ""),
    ):
        remote = RemoteLeafOptions(urls, tls=TLSOptions(), proxy=proxy)
        found = list(remote.proxy_warnings())
        assert len(found) == bool(warning)
        assert warning in "".join(found)


def test_remotes_with_the_same_urls_differ_in_account_or_credentials() -> None:
    seed = encode_seed(Prefix.USER, b"s" * 32)
    one = RemoteLeafOptions((A,))
    others = replace(one, account="A"), replace(one, credentials="c"), replace(one, nkey=seed)
    LeafNodeOptions(remotes=(one, *others)).baseline(ACCOUNTS)
    with pytest.raises(OptionError) as raised:
        LeafNodeOptions(remotes=(others[2], replace(others[2], hub=True))).baseline(ACCOUNTS)
    assert str(raised.value) == 'duplicate remote urls=["nats://a:1"], account="$G", nkey="[REDACTED]"'


def test_accounts_in_operator_mode() -> None:
    key = encode(Prefix.ACCOUNT, b"a" * 32)
    LeafNodeOptions(port=1, account=key, remotes=(RemoteLeafOptions((A,), account=key),)).baseline(None)
    for leaf, error in (
        (LeafNodeOptions(users=(User("a"),)), "operator mode does not allow specifying users"),
        (
            LeafNodeOptions(remotes=(RemoteLeafOptions((A,)),)),
            "operator mode requires account nkeys in remotes",
        ),
        (LeafNodeOptions(port=1, account="A"), "operator mode and non account nkeys are incompatible"),
    ):
        with pytest.raises(OptionError, match=error):
            leaf.baseline(None)
    LeafNodeOptions(account="A").baseline(None)


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        (Options(), True),
        (Options(no_system_account=True), False),
        (Options(system_account="$G"), False),
    ],
)
def test_the_system_account_may_have_leaf_nodes_where_it_exists(options: Options, allowed: bool) -> None:
    options.leafnodes = LeafNodeOptions(account="$SYS")
    if allowed:
        options.baseline()
    else:
        with pytest.raises(OptionError, match="cannot find local account"):
            options.baseline()


def test_secrets_are_not_shown() -> None:
    remote = RemoteLeafOptions(
        (URL("nats", "u", "secret", "a"),), nkey="secret", proxy=ProxyOptions(password="secret")
    )
    assert "secret" not in repr(LeafNodeOptions(password="secret", remotes=(remote,)))
    assert "secret" not in str(remote)
