"""TLS of gateways: that of the block, and that of clusters with a block of their own."""

from dataclasses import replace

from gnats.options.values.gateway import GatewayOptions
from gnats.options.values.tls import TLS_TIMEOUT
from gnats.tls.leafs import DiallingTLS
from gnats.tls.links import LinkTLS


class GatewayTLS:
    """The TLS contexts of a gateway block. Raises OptionError.

    A reload replaces this object; connections keep the context that they started with.
    """

    def __init__(self, block: GatewayOptions) -> None:
        own = block.tls
        self.accepting = LinkTLS(own) if own else None
        time, pinned = (own.timeout, own.pinned_certs) if own else (TLS_TIMEOUT, frozenset[str]())
        self._remotes = {
            remote.name: DiallingTLS(replace(remote.tls, timeout=remote.tls.timeout or time), pinned)
            for remote in block.gateways
            if remote.tls and remote.name != block.name
        }
        self.insecure = any(tls and tls.insecure for tls in (own, *(each.tls for each in block.gateways)))

    def of(self, name: str) -> DiallingTLS | LinkTLS | None:
        """Return what dials a cluster; None: clear text."""
        return self._remotes.get(name, self.accepting)
