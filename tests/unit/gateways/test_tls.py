"""TLS by cluster: the block of a remote, else that of the gateway block; pinned keys are the latter's."""

from __future__ import annotations

import pytest
from support.certs import Certificates

from gnats.errors import OptionError
from gnats.options.options import Options
from gnats.options.values.gateway import GatewayOptions, RemoteGatewayOptions
from gnats.options.values.tls import TLSOptions
from gnats.server.links import make_gateway_tls
from gnats.tls.gateways import GatewayTLS


@pytest.fixture
def node(certs: Certificates) -> TLSOptions:
    pair = certs.node
    return TLSOptions(pair.cert_file, pair.key_file, ca_file=certs.ca.cert_file, verify=True)


def block(tls: TLSOptions | None, remote: TLSOptions | None) -> GatewayOptions:
    remotes = RemoteGatewayOptions("F", tls=remote), RemoteGatewayOptions("G", tls=TLSOptions("none", "none"))
    return GatewayOptions("G", port=1, tls=tls, gateways=remotes)


def test_a_remote_may_have_tls_of_its_own(node: TLSOptions) -> None:
    alone = GatewayTLS(block(None, TLSOptions()))  # one's own name is not dialled, and so its block not read
    assert (alone.accepting, alone.of("K")) == (None, None)
    assert alone.of("F") is not None
    both = GatewayTLS(block(node, TLSOptions(insecure=True)))
    assert both.of("K") is both.accepting is not None
    assert both.of("F") not in (None, both.accepting)
    assert (alone.insecure, both.insecure) == (False, True)


def test_a_gateway_without_tls_loads_none(node: TLSOptions) -> None:
    assert make_gateway_tls(Options(gateway=GatewayOptions("G", port=1))) is None
    assert make_gateway_tls(Options(gateway=GatewayOptions(tls=node))) is None
    assert make_gateway_tls(Options(gateway=GatewayOptions("G", port=1, tls=node))) is not None


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(OptionError, match="open none: no such file or directory"):
        GatewayTLS(block(TLSOptions("none", "none"), None))
