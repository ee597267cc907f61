"""The INFO and CONNECT of this server's gateway."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gnats.cluster.info import ROUTE_PROTO, info_line, server_connect_line
from gnats.cluster.told import CountedURLs, told_address
from gnats.go.text import join_host_port
from gnats.go.url import URL
from gnats.version import NATS_VERSION, RUNTIME

if TYPE_CHECKING:
    from gnats.nkeys.identity import Identity
    from gnats.options.options import Options

GOSSIP, ALL_SUBS_START, ALL_SUBS_COMPLETE = 1, 2, 3
"""Commands in an INFO: it tells of another cluster; an account's interest follows; that was all of it."""
_OF_ROUTES = "GW"
"""Begins the server id in an INFO about a gateway over a route: it is not about a server of the cluster."""


class OwnInfo:
    """Makes this server's INFO and CONNECT. `port` is the one that it listens on, set when it does."""

    def __init__(self, identity: "Identity", options: "Callable[[], Options]") -> None:
        self._identity = identity
        self._options = options
        self.port = 0
        self.urls = CountedURLs()
        """The addresses of this server's gateway, and of the others in its cluster."""

    def address(self) -> tuple[str, int]:
        """Return the host and the port that peers are told (setGatewayInfoHostPort)."""
        block = self._options().gateway
        return told_address(block.host, self.port, block.advertise)

    @property
    def own_url(self) -> str:
        """The address that peers are told; empty while the server does not listen."""
        return join_host_port(*self.address()) if self.port else ""

    def line(self) -> bytes:
        """Return the INFO of a connection."""
        opts, identity = self._options(), self._identity
        host, port = self.address()
        values: dict[str, object] = {
            "server_id": identity.id,
            "server_name": identity.name,
            "version": NATS_VERSION,
            "proto": ROUTE_PROTO,
            "go": RUNTIME,
            "host": host,
            "port": port,
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
