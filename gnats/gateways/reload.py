"""Reload the TLS of gateways while their connections are up (updateRemotesTLSConfig, recheckPinnedCerts)."""

from typing import TYPE_CHECKING

from gnats.cluster.reload import close_unpinned, pinned_certs
from gnats.gateways.gateways import Gateways
from gnats.options.values.gateway import GatewayOptions

if TYPE_CHECKING:
    from gnats.log.logger import Logger
    from gnats.tls.gateways import GatewayTLS


def reload_gateways(
    gateways: Gateways,
    old: GatewayOptions,
    new: GatewayOptions,
    tls: "GatewayTLS | None",
    log: "Logger",
) -> None:
    """Use other certificates for new connections; close those whose peers have none of the pinned keys."""
    gateways.tls = tls
    if pinned_certs(new.tls) != pinned_certs(old.tls):
        close_unpinned(gateways.table, pinned_certs(new.tls), log)
