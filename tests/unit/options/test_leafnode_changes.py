"""What a reload may change of leaf nodes, and what it needs another start for."""

from dataclasses import replace

import pytest

from gnats.errors import OptionError
from gnats.go.url import URL
from gnats.options.leafnode_changes import LeafNodeChanges, leafnode_changes
from gnats.options.options import Options
from gnats.options.reloadable import diff_options
from gnats.options.values.auth import User
from gnats.options.values.cluster import Compression
from gnats.options.values.leafnodes import LeafNodeOptions, ProxyOptions, RemoteLeafOptions
from gnats.options.values.tls import TLSOptions

pytestmark = pytest.mark.timeout(60)

ONE = RemoteLeafOptions((URL("nats", host="a:1"),))
TWO = RemoteLeafOptions((URL("nats", "u", "secret", "b:1"),), credentials="c")
BASE = LeafNodeOptions(port=7422, remotes=(ONE, TWO))


def changes(old: LeafNodeOptions, new: LeafNodeOptions) -> LeafNodeChanges:
    return leafnode_changes(old.baseline({"$G", "A"}), new.baseline({"$G", "A"}))


def with_one(**given: object) -> LeafNodeOptions:
    """Return the base with other options of the first remote."""
    return replace(BASE, remotes=(replace(ONE, **given), TWO))


def test_nothing_has_changed() -> None:
    found = changes(BASE, BASE)
    assert not found
    assert list(found.notices()) == []


def test_remotes_have_no_order() -> None:
    assert not changes(BASE, replace(BASE, remotes=(TWO, ONE)))
    assert not changes(BASE, replace(BASE, remotes=(replace(ONE, account="$G"), TWO)))


def test_remotes_come_and_go() -> None:
    three = replace(ONE, account="A")
    found = changes(BASE, replace(BASE, remotes=(TWO, three)))
    assert found
    (added,), (removed,) = found.added, found.removed
    assert (added.account, removed.account, found.changed) == ("A", "$G", ())
    assert list(found.notices()) == ['Reloaded: LeafNode Remote urls=["nats://a:1"], account="$G" removed']
    (gone,) = changes(BASE, replace(BASE, remotes=(ONE,))).notices()
    assert gone == (
        'Reloaded: LeafNode Remote urls=["nats://u:xxxxx@b:1"], account="$G", credentials="c" removed'
    )


def test_a_remote_is_switched_off() -> None:
    found = changes(BASE, with_one(disabled=True))
    (change,) = found.changed
    assert (change.disabled, change.new.disabled, change.compression, change.tls) == (
        True,
        True,
        False,
        False,
    )
    assert list(found.notices()) == [
        'Reloaded: LeafNode Remote urls=["nats://a:1"], account="$G" Disabled value is: true'
    ]


def test_compression_changes() -> None:
    found = changes(BASE, replace(with_one(compression=Compression("off")), compression=Compression("on")))
    assert not found.compression
    assert list(found.notices()) == [
        'Reloaded: LeafNode Remote urls=["nats://a:1"], account="$G" Compression value is: {off []}'
    ]
    found = changes(BASE, replace(BASE, compression=Compression("s2_auto", (0.005, 1.5))))
    assert found.compression
    assert list(found.notices()) == ["Reloaded: LeafNode Compression value is: {s2_auto [5ms 1.5s]}"]


def test_tls_first_changes() -> None:
    tls = TLSOptions(cert_file="c", key_file="k")
    first = replace(tls, handshake_first=True, handshake_first_fallback=0.05)
    found = changes(replace(with_one(tls=tls), tls=tls), replace(with_one(tls=first), tls=first))
    assert (found.handshake_first, found.tls) == (True, False)
    (change,) = found.changed
    assert (change.handshake_first, change.tls) == (True, False)
    assert list(found.notices()) == [
        "Reloaded: LeafNode TLS HandshakeFirst value is: true",
        "Reloaded: LeafNode TLS HandshakeFirstFallback value is: 50ms",
        'Reloaded: LeafNode Remote urls=["nats://a:1"], account="$G" TLS HandshakeFirst value is: true',
    ]


def test_tls_of_a_proxy_changes() -> None:
    proxy = ProxyOptions("https://p")
    found = changes(with_one(proxy=proxy), with_one(proxy=replace(proxy, tls=TLSOptions())))
    (change,) = found.changed
    assert (change.proxy_tls, change.tls) == (True, False)
    assert list(found.notices()) == []


def test_certificates_change() -> None:
    tls = TLSOptions(cert_file="c", key_file="k")
    other = replace(tls, cert_file="d")
    found = changes(replace(with_one(tls=tls), tls=tls), replace(with_one(tls=other), tls=other))
    assert (found.tls, found.handshake_first) == (True, False)
    assert [change.tls for change in found.changed] == [True]
    assert list(found.notices()) == []


@pytest.mark.parametrize(
    ("new", "refusal"),
    [
        (replace(BASE, host="x"), 'field "Host": old=127.0.0.1, new=x'),
        (replace(BASE, port=1), 'field "Port": old=7422, new=1'),
        (replace(BASE, username="u"), 'field "Username": old=, new=u'),
        (replace(BASE, password="p"), 'field "Password": old=, new=[REDACTED]'),
        (replace(BASE, nkey="n"), 'field "Nkey": old=, new=n'),
        (replace(BASE, account="A"), 'field "Account": old=, new=A'),
        (replace(BASE, users=(User("a"),)), 'field "Users": old=[], new=[...]'),
        (replace(BASE, auth_timeout=1.5), 'field "AuthTimeout": old=2, new=1.5'),
        (replace(BASE, auth_timeout=2, tls=TLSOptions(timeout=5)), 'field "TLSTimeout": old=2, new=5'),
        (
            replace(BASE, auth_timeout=2, tls=TLSOptions(pinned_certs=frozenset("ab"))),
            'field "TLSPinnedCerts": old=map[], new=map[a:{} b:{}]',
        ),
        (
            replace(BASE, auth_timeout=2, tls=TLSOptions(verify_and_map=True)),
            'field "TLSMap": old=false, new=true',
        ),
        (replace(BASE, advertise="a:1"), 'field "Advertise": old=, new=a:1'),
        (replace(BASE, no_advertise=True), 'field "NoAdvertise": old=false, new=true'),
        (replace(BASE, reconnect_interval=5.0), 'field "ReconnectInterval": old=1s, new=5s'),
        (replace(BASE, write_deadline=5.0), 'field "WriteDeadline": old=0s, new=5s'),
        (replace(BASE, write_timeout="retry"), 'field "WriteTimeout": old=, new=retry'),
        (replace(BASE, min_version="2.9.0"), 'field "MinVersion": old=, new=2.9.0'),
        (
            replace(BASE, isolate_leafnode_interest=True),
            'field "IsolateLeafnodeInterest": old=false, new=true',
        ),
        (replace(BASE, dial_timeout=5.0), 'field "DialTimeout": old=0s, new=5s'),
    ],
)
def test_what_needs_another_start(new: LeafNodeOptions, refusal: str) -> None:
    with pytest.raises(OptionError) as raised:
        changes(BASE, new)
    assert str(raised.value) == f"config reload not supported for LeafNode: {refusal}"


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"no_randomize": True}, 'field "NoRandomize": old=false, new=true'),
        ({"tls": TLSOptions(timeout=2)}, 'field "TLSTimeout": old=0, new=2'),
        ({"hub": True}, 'field "Hub": old=false, new=true'),
        ({"deny_imports": ("a", "b")}, 'field "DenyImports": old=[], new=[a b]'),
        ({"deny_exports": ("a",)}, 'field "DenyExports": old=[], new=[a]'),
        ({"first_info_timeout": 5.0}, 'field "FirstInfoTimeout": old=1s, new=5s'),
        ({"dial_timeout": 5.0}, 'field "DialTimeout": old=0s, new=5s'),
        ({"websocket_compression": True}, 'field "Websocket": old={false false}, new={true false}'),
        (
            {"proxy": ProxyOptions("http://p", "u", "secret", 1.5)},
            'field "Proxy": only the proxy TLS configuration can be changed',
        ),
        ({"local_isolation": True}, 'field "LocalIsolation": old=false, new=true'),
        ({"request_isolation": True}, 'field "RequestIsolation": old=false, new=true'),
        ({"ignore_discovered_servers": True}, 'field "IgnoreDiscoveredServers": old=false, new=true'),
    ],
)
def test_what_needs_another_start_of_a_remote(given: dict[str, object], refusal: str) -> None:
    with pytest.raises(OptionError) as raised:
        changes(BASE, with_one(**given))
    where = 'remote urls=["nats://a:1"], account="$G"'
    assert str(raised.value) == f"config reload not supported for LeafNode: {where}: {refusal}"


def test_users_have_no_order() -> None:
    users = User("a", "p"), User("b", "q", account="A")
    old = replace(BASE, users=users)
    assert not changes(old, replace(BASE, users=users[::-1]))
    for other in (
        (User("a", "x"), users[1]),
        (User("c", "p"), users[1]),
        (User("a", "p", account="A"), users[1]),
    ):
        with pytest.raises(OptionError, match='field "Users"'):
            changes(old, replace(BASE, users=other))


def test_the_changes_of_a_reload() -> None:
    old, new = (Options(leafnodes=leaf.baseline(["$G"])) for leaf in (BASE, with_one(disabled=True)))
    assert diff_options(old, old) == {}
    assert diff_options(old, new) == {"LeafNode": ""}
    with pytest.raises(OptionError, match='field "Host"'):
        diff_options(old, replace(old, leafnodes=replace(old.leafnodes, host="x")))
