"""The gateway block: this cluster's gateway and those to other clusters (GatewayOpts in opts.go)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gnats.errors import OptionError
from gnats.go.hostport import RANDOM_PORT, parse_host_port
from gnats.go.text import quote
from gnats.go.url import URL
from gnats.options.values.cluster import LOOPBACK, NO_CLUSTER, RESERVED
from gnats.options.values.tls import TLS_TIMEOUT, TLSOptions, default_auth_timeout


@dataclass(frozen=True, slots=True)
class RemoteGatewayOptions:
    """Another cluster, to which each server of this one connects (RemoteGatewayOpts)."""

    name: str = ""
    urls: tuple[URL, ...] = ()
    tls: TLSOptions | None = None
    """None: that of the block. A timeout of 0: the block's."""


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """The gateway block of a server. Durations are seconds; 0 and "" mean the default."""

    name: str = ""
    """The name of this server's cluster."""
    host: str = ""
    port: int = 0
    """0: no gateway; -1: a free port."""
    username: str = ""
    password: str = field(default="", repr=False)
    auth_timeout: float = 0.0
    tls: TLSOptions | None = None
    advertise: str = ""
    """host:port that INFO names in place of the address that the server listens on."""
    connect_retries: int = 0
    """Attempts to connect to a cluster that is not configured, after the first; configured ones: for ever."""
    connect_backoff: bool = False
    """Double the time from one attempt to connect to the next."""
    gateways: tuple[RemoteGatewayOptions, ...] = ()
    """The clusters to connect to. One with this cluster's name is allowed, and is not dialled."""
    reject_unknown: bool = False
    """Refuse connections from clusters that `gateways` does not name."""
    write_deadline: float = 0.0
    write_timeout: str = ""

    @property
    def configured(self) -> bool:
        """Whether the server has, or should have, a gateway."""
        return bool(self.name or self.port)

    def baseline(self) -> GatewayOptions:
        """Return a checked copy with defaults. Raises OptionError."""
        gateway = self
        if self.port:
            tls = self.tls
            if tls and not tls.timeout:
                tls = replace(tls, timeout=TLS_TIMEOUT)
            gateway = replace(
                self,
                host=self.host or LOOPBACK,
                tls=tls,
                auth_timeout=self.auth_timeout or default_auth_timeout(tls),
            )
        gateway.validate()
        return gateway

    def validate(self) -> None:
        """Check the options as nats-server does (validateGatewayOptions). Raises OptionError."""
        if not self.configured:
            return
        if not self.name:
            raise OptionError("gateway has no name")
        if " " in self.name:
            raise OptionError("gateway name cannot contain spaces")
        if self.name == NO_CLUSTER:
            raise OptionError(RESERVED)
        if not self.port:
            raise OptionError(f"gateway {quote(self.name)} has no port specified (select -1 for random port)")
        if not RANDOM_PORT <= self.port <= 65535:
            raise OptionError(f"gateway port {self.port} is not a port: -1 (a free one) to 65535")
        for i, remote in enumerate(self.gateways):
            if not remote.name:
                raise OptionError(f"gateway in the list {i} has no name")
            if not remote.urls:
                raise OptionError(f"gateway {quote(remote.name)} has no URL")
        if self.advertise:
            parse_host_port(self.advertise, self.port)

    def check_system_account(self, system_account: str) -> None:
        """Check that the options of a server that accepts leaf nodes, too, name one. Raises OptionError."""
        if self.configured and not system_account:
            raise OptionError(
                "leaf nodes and gateways (both being defined) require a system account to also be configured"
            )

    def cluster_name(self, name: str) -> str:
        """Return the name of the cluster, which its own block calls `name`; "": it has none.

        Raises OptionError when the two blocks differ.
        """
        if self.name and name and name != self.name:
            raise OptionError("cluster name conflicts between cluster and gateway definitions")
        return name or self.name
