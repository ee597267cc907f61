"""The table of gateway connections: one to each other cluster, and those that come from them.

It decides; it closes and sends nothing.
"""

from collections.abc import Iterator

from gnats.gateways.gateway import Gateway


class GatewayTable:
    """The registered connections."""

    def __init__(self) -> None:
        self._outbound: dict[str, Gateway] = {}
        self._inbound: dict[int, Gateway] = {}

    def __iter__(self) -> Iterator[Gateway]:
        yield from self._outbound.values()
        yield from self._inbound.values()

    def __len__(self) -> int:
        return len(self._outbound) + len(self._inbound)

    @property
    def inbound(self) -> list[Gateway]:
        return list(self._inbound.values())

    def to(self, name: str) -> Gateway | None:
        """Return the connection to a cluster."""
        return self._outbound.get(name)

    def of(self, name: str) -> list[Gateway]:
        """Return the connections that come from a cluster."""
        return [gateway for gateway in self._inbound.values() if gateway.name == name]

    def nearest_first(self) -> list[Gateway]:
        """Return the outbound connections by round trip time; those that are not measured come last."""
        return sorted(self._outbound.values(), key=lambda gateway: gateway.rtt or 1 << 62)

    def add(self, gateway: Gateway) -> bool:
        """Register a connection; return False when there is another one to its cluster."""
        if not gateway.outbound:
            self._inbound[gateway.cid] = gateway
        elif gateway.name in self._outbound:
            return False
        else:
            self._outbound[gateway.name] = gateway
        gateway.registered = True
        return True

    def remove(self, gateway: Gateway) -> bool:
        """Forget a connection; return whether it was there."""
        was, gateway.registered = gateway.registered, False
        if was and gateway.outbound:
            del self._outbound[gateway.name]
        elif was:
            del self._inbound[gateway.cid]
        return was
