"""The cluster block."""

import pytest

from gnats.conf import Token, parse
from gnats.errors import OptionError
from gnats.go.url import URL
from gnats.options.keys.cluster import cluster_options
from gnats.options.keys.values import ConfigError, Problems
from gnats.options.values.auth import SubjectPermission
from gnats.options.values.cluster import ClusterOptions, Compression, RoutePermissions

from .reading import HERE, options, read

pytestmark = pytest.mark.timeout(60)


def cluster(text: str) -> tuple[ClusterOptions, Problems]:
    """Read the text between the braces."""
    problems = Problems()
    return cluster_options("cluster", Token(parse(text, HERE).root, HERE, 1, 0), problems), problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: C", ClusterOptions(name="C")),
        ("listen: 127.0.0.1:6222", ClusterOptions(host="127.0.0.1", port=6222)),
        ("listen: 6222", ClusterOptions(port=6222)),
        ("host: a, port: -1", ClusterOptions(host="a", port=-1)),
        ("net: a", ClusterOptions(host="a")),
        (
            "authorization { user: u, password: p, timeout: 3 }",
            ClusterOptions(username="u", password="p", auth_timeout=3.0),
        ),
        (
            "routes: ['nats://u:p@a:1', ' nats-route://b:2 ']",
            ClusterOptions(routes=(URL("nats", "u", "p", "a:1"), URL("nats-route", host="b:2"))),
        ),
        ("advertise: a:1", ClusterOptions(advertise="a:1")),
        ("cluster_advertise: a:1", ClusterOptions(advertise="a:1")),
        ("no_advertise: true", ClusterOptions(no_advertise=True)),
        ("connect_retries: 5", ClusterOptions(connect_retries=5)),
        ("connect_backoff: true", ClusterOptions(connect_backoff=True)),
        (
            "permissions { import: a, export { allow: [b, c], deny: d } }",
            ClusterOptions(
                permissions=RoutePermissions(SubjectPermission(("a",)), SubjectPermission(("b", "c"), ("d",)))
            ),
        ),
        ("pool_size: -1", ClusterOptions(pool_size=-1)),
        ("accounts: [A, B]", ClusterOptions(accounts=("A", "B"))),
        ("accounts: A", ClusterOptions(accounts=("A",))),
        ("compression: s2_best", ClusterOptions(compression=Compression("s2_best"))),
        ("compression: true", ClusterOptions(compression=Compression("s2_fast"))),
        ("compression: off", ClusterOptions(compression=Compression("off"))),
        (
            "compression { mode: s2_auto, rtt_thresholds: [5ms, 1s] }",
            ClusterOptions(compression=Compression("s2_auto", (0.005, 1.0))),
        ),
        ("compression { rtt: [5ms] }", ClusterOptions(compression=Compression("", (0.005,)))),
        ("ping_interval: 20s", ClusterOptions(ping_interval=20.0)),
        ("ping_max: 5", ClusterOptions(ping_max=5)),
        ("write_deadline: 3s", ClusterOptions(write_deadline=3.0)),
        ("write_timeout: retry", ClusterOptions(write_timeout="retry")),
        ("write_timeout: default", ClusterOptions()),
    ],
)
def test_each_key_sets_its_option(text: str, expected: ClusterOptions) -> None:
    found, problems = cluster(text)
    assert found == expected
    assert (problems.errors, problems.warnings) == ([], [])


def test_permissions_of_the_block_come_before_those_of_its_authorization() -> None:
    old = "authorization { user: u, password: p, permissions { import: a, export: b } }"
    for text, imports in (old, "a"), (f"permissions: {{ import: c }}\n{old}", "c"):
        found, problems = cluster(text)
        assert found.permissions
        assert found.permissions.imports == SubjectPermission((imports,))
        assert "is deprecated" in "".join(problems.warnings)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("ping_interval: 1m", "Cluster 'ping_interval' will reset to 30s which is the max for routes"),
        ("ping_interval: 5", "ping_interval should be converted to a duration"),
        ("routes: ['x://a:1', 'x://a:1']", "Duplicate route entry detected"),
    ],
)
def test_warnings(text: str, warning: str) -> None:
    assert warning in "".join(cluster(text)[1].warnings)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("name: 'a b'", "cluster name cannot contain spaces"),
        ("zz: 1", 'unknown field "zz"'),
        ("authorization { users: [{user: a, password: b}] }", "does not allow multiple users"),
        ("authorization { token: t }", "does not support tokens"),
        ("routes: ['127.0.0.1:1']", 'error parsing route url ["127.0.0.1:1"]: first path segment'),
        ("routes: [1 ]", "an item of routes takes a string, not 1"),
        ("permissions { allow_responses: true }", "Cluster permissions do not support dynamic responses"),
        ("permissions { export: 'a b' }", 'cluster export allow: subject "a b" is not a valid subject'),
        ("compression: 5", "compression takes true, false, a mode or a block, not 5"),
        ("compression { rtt: [x] }", 'invalid duration "x"'),
        ("write_timeout: x", "write_timeout must be 'default', 'close' or 'retry'"),
        ("tls { cert_file: c }", "missing 'key_file' in TLS configuration"),
    ],
)
def test_errors(text: str, error: str) -> None:
    assert error in "".join(cluster(text)[1].errors)


def test_tls_between_servers_verifies_both_sides() -> None:
    found, _ = cluster("tls { verify_cert_and_check_known_urls: true, timeout: 5 }")
    assert found.tls
    assert (found.tls.verify, found.tls.check_known_urls, found.tls.timeout) == (True, True, 5.0)


def test_a_lone_server_may_have_a_cluster_name() -> None:
    assert options("cluster { name: C }").cluster == ClusterOptions(name="C")
    opts, warnings = read("cluster { name: C, routes: ['x://a:1'] }")
    assert opts.baseline().cluster.name == "C"
    assert "routes without a port to listen on are not dialled" in warnings[0]


def test_a_cluster_with_a_port_has_routes() -> None:
    opts = options("cluster { listen: 'localhost:-1', name: C, routes: ['nats://a:1'] }").baseline()
    found = opts.cluster
    assert (found.host, found.port, found.pool_size) == ("localhost", -1, 3)
    assert found.routes == (URL("nats", host="a:1"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cluster { port: -1, name: C }", "jetstream cluster requires `server_name` to be set"),
        ("server_name: S, cluster { port: -1 }", "jetstream cluster requires `cluster.name` to be set"),
        (
            "server_name: S, cluster { port: -1, name: C }\n"
            "leafnodes { remotes: [{ url: 'nats://a:1', account: '$SYS' }] }",
            "a JetStream cluster that extends another one over leaf nodes is not supported yet",
        ),
    ],
)
def test_a_cluster_with_jetstream_has_names(text: str, message: str) -> None:
    with pytest.raises(OptionError) as raised:
        options(f"jetstream: enabled, {text}").baseline()
    assert str(raised.value) == message
    assert options("jetstream: enabled, cluster { name: C }").baseline().jetstream.enabled
    named = "server_name: S, cluster { port: -1, name: C }"
    assert options(f"jetstream: enabled, {named}").baseline().jetstream.enabled


def test_it_is_a_block() -> None:
    with pytest.raises(ConfigError, match="cluster takes a block"):
        cluster_options("cluster", Token("x", HERE, 1, 0), Problems())
