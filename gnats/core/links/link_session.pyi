"""The session of a link: what those of routes and leaf nodes share."""

from gnats.core.textsession import TextSession

class LinkSession(TextSession):
    """A connection to another server; see Connection."""

    def compress(self, greeting: bytes, *, solicited: bool, uncompressed: bool = False) -> None:
        """Both servers compress from now on: send `greeting`, an INFO; go on behind the INFO of the peer.

        A connection that was `solicited`, by this server, sends the greeting as it is, and nothing more
        before the peer has begun to compress. Otherwise the greeting is compressed, and so is what follows
        the peer's INFO. With `uncompressed`, write the format only, which costs the least. Post EV_PONG at
        each PONG from now on. Call it once, before join(). Raises MemoryError.
        """
    def set_uncompressed(self, uncompressed: bool) -> None:
        """After compress(): write the format only from now on, or compress."""
    def set_pings(self, *, ping_interval: float, ping_max: int) -> None:
        """Set the seconds between PINGs, and how many may be unanswered."""
