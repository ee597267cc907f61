"""The way back of a request that went over a gateway."""

from collections.abc import Mapping

from gnats.core.links.link_session import LinkSession
from gnats.core.runtime.state import ServerState

def name_hash(name: bytes) -> bytes:
    """Return the hash of a cluster's name, or of a server's id, as it stands in mapped replies."""

class GatewayReplies:
    """What a server's pollers know of its gateways, to map replies and to send what answers them.

    It lives as long as the pollers run. Its methods are called on the control loop only.
    """

    def __init__(self, state: ServerState) -> None: ...
    def set_gateway(self, name: bytes, server_id: bytes) -> None:
        """Begin to map replies: this server is of the cluster `name`. Call it once. Raises MemoryError."""
    def set_gateway_links(self, links: Mapping[bytes, LinkSession]) -> None:
        """Set the outbound connections, by the hash of the cluster's name.

        Raises MemoryError, and ValueError for what is no hash.
        """
    def set_gateway_routes(self, routes: Mapping[bytes, LinkSession]) -> None:
        """Set the routes of this cluster, by the hash of the server's id.

        Raises MemoryError, and ValueError for what is no hash.
        """
