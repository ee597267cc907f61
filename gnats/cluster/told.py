"""What other servers are told of the addresses of this server's ports, and of those of its cluster."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

from gnats.cluster.client_urls import is_global_unicast
from gnats.go.hostport import parse_host_port
from gnats.go.text import join_host_port
from gnats.runtime.accept import UNSPECIFIED
from gnats.system.interfaces import interface_addresses


class Block(Protocol):
    """The options of a port."""

    @property
    def host(self) -> str: ...
    @property
    def advertise(self) -> str: ...


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


class ToldAddress:
    """A port whose address others are told, with those of the cluster's servers.

    `block` returns its options.
    """

    def __init__(self, block: Callable[[], Block]) -> None:
        self._block = block
        self.port = 0
        """The port that is listened on, set then; 0: none."""
        self.urls = CountedURLs()
        """The addresses of this server and of the others in its cluster that can be dialled."""

    def address(self) -> tuple[str, int]:
        """Return the host and the port to tell others (getNonLocalIPsIfHostIsIPAny).

        Of all addresses, the first one that other machines may reach counts.
        """
        block = self._block()
        if block.advertise:
            return parse_host_port(block.advertise, self.port)
        host = block.host
        if host in UNSPECIFIED:
            host = next(filter(is_global_unicast, interface_addresses()), host)
        return host, self.port

    @property
    def own_url(self) -> str:
        """The address to tell others; empty while the server does not listen."""
        return join_host_port(*self.address()) if self.port else ""
