"""The host whose certificate a server that is dialled must have (saveRouteTLSName, doTLSHandshake)."""

import socket
from collections.abc import Iterable

from gnats.go.url import URL


class TLSName:
    """Knows a name for servers that are dialled by address: the first one among the configured routes.

    Other servers tell of addresses only, and a certificate rarely has them.
    """

    def __init__(self) -> None:
        self._name = ""

    def save(self, routes: Iterable[URL]) -> None:
        """Keep the first name of these routes, unless one is known."""
        names = (url.hostname() for url in routes)
        self._name = self._name or next((name for name in names if not is_address(name)), "")

    def of(self, url: URL) -> str:
        """Return the host that a server's certificate must be for."""
        host = url.hostname()
        return self._name if self._name and is_address(host) else host

    def refused(self, url: URL) -> None:
        """Forget the name if it was not one of the certificate that the server at this URL has shown."""
        if self.of(url) == self._name:
            self._name = ""


def is_address(host: str) -> bool:
    """Check whether a host is a numeric address, without a zone."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return True
    return False
