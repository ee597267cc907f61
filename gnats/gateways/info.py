"""The INFO and CONNECT of this server's gateway."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gnats.cluster.info import identity_fields, info_line, server_connect_line
from gnats.cluster.told import ToldAddress
from gnats.go.url import URL

if TYPE_CHECKING:
    from gnats.nkeys.identity import Identity
    from gnats.options.options import Options

GOSSIP, ALL_SUBS_START, ALL_SUBS_COMPLETE = 1, 2, 3
"""Commands in an INFO: it tells of another cluster; an account's interest follows; that was all of it."""
_OF_ROUTES = "GW"
"""Begins the server id in an INFO about a gateway over a route: it is not about a server of the cluster."""


class OwnInfo(ToldAddress):
    """Makes the INFO and CONNECT of this server's gateway."""

    def __init__(self, identity: "Identity", options: "Callable[[], Options]") -> None:
        super().__init__(lambda: options().gateway)
        self._identity = identity
        self._options = options

    def line(self, *, nonce: str = "") -> bytes:
        """Return the INFO of a connection. `nonce` is a mark (gnats.gateways.mesh)."""
        opts = self._options()
        host, port = self.address()
        values: dict[str, object] = {
            **identity_fields(self._identity),
            "host": host,
            "port": port,
            "nonce": nonce,
            "headers": not opts.no_header_support,
            "auth_required": bool(opts.gateway.username),
            "tls_required": opts.gateway.tls is not None,
            "tls_verify": opts.gateway.tls is not None,
            "max_payload": opts.max_payload,
            "gateway": opts.gateway.name,
            "gateway_urls": tuple(self.urls),
            "gateway_url": self.own_url,
            "gateway_nrp": True,
            "gateway_iom": True,
            "interest_digests": True,
        }
        return info_line(values)

    def connect(self, url: URL, *, tls: bool) -> bytes:
        """Return the CONNECT for a server that this one has dialled (sendGatewayConnect)."""
        block = self._options().gateway
        login = {"user": url.user, "pass": url.password or ""}
        if not url.user:
            login = {"user": block.username, "pass": block.password}
        return server_connect_line(
            {**login, "tls_required": tls, "name": self._identity.id, "gateway": block.name}
        )

    def command(self) -> bytes:
        """Return an INFO with a command, up to the number of the command."""
        start = info_line({"gateway": self._options().gateway.name}, end=b"")
        return start.removesuffix(b"}") + b',"gateway_cmd":'

    def gossip(self, name: str, urls: Iterable[str], *, to_route: bool = False) -> bytes:
        """Return an INFO that tells of another cluster, for a gateway or a route."""
        own_id = self._identity.id
        values: dict[str, object] = {
            "server_id": f"{_OF_ROUTES}{own_id}" if to_route else own_id,
            "gateway": name,
            "gateway_urls": tuple(urls),
            "gateway_cmd": GOSSIP,
        }
        return info_line(values)
