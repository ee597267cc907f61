"""The options of a gateway: defaults and checks."""

import pytest

from gnats.errors import OptionError
from gnats.go.url import URL
from gnats.options.options import Options
from gnats.options.values.cluster import ClusterOptions
from gnats.options.values.gateway import GatewayOptions, RemoteGatewayOptions
from gnats.options.values.leafnodes import LeafNodeOptions
from gnats.options.values.tls import TLSOptions

pytestmark = pytest.mark.timeout(60)

A = URL("nats", host="a:1")
LEAF = "leaf nodes and gateways (both being defined) require a system account to also be configured"


def test_defaults_of_a_gateway() -> None:
    found = GatewayOptions("G", port=-1).baseline()
    assert (found.host, found.auth_timeout, found.tls) == ("127.0.0.1", 2.0, None)
    found = GatewayOptions("G", port=-1, tls=TLSOptions(timeout=0.0)).baseline()
    assert found.tls
    assert (found.tls.timeout, found.auth_timeout) == (2.0, 3.0)


def test_a_server_without_a_gateway_has_no_defaults() -> None:
    for options in GatewayOptions(), GatewayOptions(gateways=(RemoteGatewayOptions(),)):
        assert options.baseline() == options
        assert not options.configured


@pytest.mark.parametrize(
    ("gateway", "error"),
    [
        (GatewayOptions(port=1), "gateway has no name"),
        (GatewayOptions("a b", port=1), "gateway name cannot contain spaces"),
        (GatewayOptions("_", port=1), "cluster name is reserved"),
        (GatewayOptions("G"), 'gateway "G" has no port specified (select -1 for random port)'),
        (GatewayOptions("G", port=65536), "gateway port 65536 is not a port: -1 (a free one) to 65535"),
        (GatewayOptions("G", port=-2), "gateway port -2 is not a port: -1 (a free one) to 65535"),
        (
            GatewayOptions("G", port=1, gateways=(RemoteGatewayOptions("A", (A,)), RemoteGatewayOptions())),
            "gateway in the list 1 has no name",
        ),
        (
            GatewayOptions("G", port=1, gateways=(RemoteGatewayOptions("A"),)),
            'gateway "A" has no URL',
        ),
        (GatewayOptions("G", port=1, advertise="a:b"), 'address a:b: "b" is not a port'),
    ],
)
def test_errors(gateway: GatewayOptions, error: str) -> None:
    with pytest.raises(OptionError) as raised:
        gateway.baseline()
    assert str(raised.value) == error


def test_the_cluster_has_the_name_of_the_gateway() -> None:
    gateway = GatewayOptions("G", port=1)
    assert gateway.cluster_name("") == gateway.cluster_name("G") == "G"
    assert GatewayOptions().cluster_name("C") == "C"
    with pytest.raises(OptionError, match="cluster name conflicts between cluster and gateway definitions"):
        gateway.cluster_name("C")


def test_the_name_of_a_gateway_is_no_generated_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnats.options.options.check_supported", lambda opts: None)
    opts = Options(gateway=GatewayOptions("G", port=1), cluster=ClusterOptions(port=1)).baseline()
    assert (opts.cluster.name, opts.cluster.generated) == ("G", False)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (Options(leafnodes=LeafNodeOptions(port=1)), LEAF),
        (Options(leafnodes=LeafNodeOptions(port=1), no_system_account=True), LEAF),
        (Options(leafnodes=LeafNodeOptions(port=1), system_account="$G"), ""),
        (Options(leafnodes=LeafNodeOptions(no_advertise=True)), ""),
    ],
)
def test_leaf_nodes_need_a_system_account_that_is_named(
    options: Options, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnats.options.options.check_supported", lambda opts: None)
    options.gateway = GatewayOptions("G", port=1)
    if not error:
        options.baseline()
        return
    with pytest.raises(OptionError) as raised:
        options.baseline()
    assert str(raised.value) == error


def test_secrets_are_not_shown() -> None:
    remote = RemoteGatewayOptions("A", (URL("nats", "u", "secret", "a"),))
    assert "secret" not in repr(GatewayOptions("G", password="secret", gateways=(remote,)))
