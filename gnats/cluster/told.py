"""What other servers are told of the addresses of this server's ports, and of those of its cluster."""

from collections import Counter
from collections.abc import Iterator

from gnats.cluster.client_urls import is_global_unicast
from gnats.go.hostport import parse_host_port
from gnats.runtime.accept import UNSPECIFIED
from gnats.system.interfaces import interface_addresses


class CountedURLs:
    """The URLs of a port of this server, and of the others in its cluster. Several may have the same one."""

    def __init__(self) -> None:
        self._urls: Counter[str] = Counter()

    def __iter__(self) -> Iterator[str]:
        return iter(self._urls)

    def add(self, url: str) -> bool:
        """Count a URL; return whether it is new."""
        self._urls[url] += 1
        return self._urls[url] == 1

    def remove(self, url: str) -> bool:
        """Undo an add(); return whether the URL has gone."""
        if self._urls[url] > 1:
            self._urls[url] -= 1
            return False
        return self._urls.pop(url, 0) == 1


def told_address(host: str, port: int, advertise: str) -> tuple[str, int]:
    """Return the host and port to tell others of a port that is listened on (getNonLocalIPsIfHostIsIPAny).

    `advertise` replaces them; of all addresses, the first one that other machines may reach counts.
    """
    if advertise:
        return parse_host_port(advertise, port)
    if host in UNSPECIFIED:
        host = next(filter(is_global_unicast, interface_addresses()), host)
    return host, port
