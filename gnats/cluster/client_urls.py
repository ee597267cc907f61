"""The URLs of the cluster's client ports, which INFO names to clients (connect_urls)."""

import ipaddress
from collections.abc import Iterable

from gnats.go.hostport import parse_host_port
from gnats.go.text import join_host_port
from gnats.options.options import Options
from gnats.system.interfaces import interface_addresses


class ClientURLs:
    """This server's own URLs, and those of the other servers, counted by the remotes that have them."""

    def __init__(self) -> None:
        self.own: tuple[str, ...] = ()
        """The URLs of this server's client port, which it tells the other servers."""
        self.hidden = False
        """Clients are told nothing (`no_advertise`)."""
        self._others: dict[str, int] = {}
        self._shown: tuple[str, ...] = ()

    @property
    def shown(self) -> tuple[str, ...]:
        """What clients are told: the own URLs first. Empty until another server has told its URLs."""
        return () if self.hidden else self._shown

    def add(self, urls: Iterable[str]) -> bool:
        """Add the URLs of a remote server; return whether clients are told something new."""
        new = [url for url in urls if self._change(url, 1) == 1]
        return self._update(changed=bool(new))

    def remove(self, urls: Iterable[str]) -> bool:
        """Remove the URLs of a remote server; return whether clients are told something new."""
        gone = [url for url in urls if url in self._others and self._change(url, -1) == 0]
        for url in gone:
            del self._others[url]
        return self._update(changed=bool(gone))

    def _change(self, url: str, by: int) -> int:
        self._others[url] = count = self._others.get(url, 0) + by
        return count

    def _update(self, *, changed: bool) -> bool:
        if changed:
            self._shown = (*self.own, *self._others)
        return changed and not self.hidden

    def hide(self, *, hidden: bool) -> bool:
        """Hide the URLs from clients, or show them; return whether clients are told something new."""
        changed = hidden != self.hidden and bool(self._shown)
        self.hidden = hidden
        return changed

    def lame_duck(self) -> None:
        """Show only the other servers' URLs from now on."""
        self.own = ()
        self._shown = tuple(self._others)


def own_urls(opts: Options, port: int) -> tuple[str, ...]:
    """Return the URLs of a server's client port: client_advertise, or one for each address it listens on.

    As nats-server does (getConnectURLs), leave out addresses that other machines cannot reach when it
    listens on all.
    """
    if opts.client_advertise:
        host, port = parse_host_port(opts.client_advertise, port)
        return (join_host_port(host, port),)
    if opts.host not in ("0.0.0.0", "::"):
        return (join_host_port(opts.host, port),)
    return tuple(join_host_port(each, port) for each in interface_addresses() if is_global_unicast(each))


def is_global_unicast(text: str) -> bool:
    """Return what Go's IsGlobalUnicast does."""
    address = ipaddress.ip_address(text)
    broadcast = text == "255.255.255.255"
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not (special or broadcast)
