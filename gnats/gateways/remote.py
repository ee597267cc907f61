"""Another cluster: the URLs of its gateways, and the state of dialling one (gatewayCfg)."""

import random
from collections.abc import Iterable
from dataclasses import replace

from gnats.cluster.tls_name import TLSName
from gnats.go.url import URL, parse_url
from gnats.options.values.gateway import RemoteGatewayOptions

MOST_URLS = 256
"""URLs of a cluster that other servers tell of: its servers, each once."""


class Remote:
    """A cluster to which this server connects: a configured one, or one that another server tells of."""

    def __init__(self, name: str, options: RemoteGatewayOptions | None = None) -> None:
        self.name = name
        self.explicit = options is not None
        """The configuration has it."""
        self.configured = {url.host: url for url in options.urls} if options else {}
        self.tls_name = TLSName()
        """The host that certificates of servers that are dialled by address must be for."""
        self.tls_name.save(self.configured.values())
        self._urls = dict(self.configured)
        self.dialling = False
        """A task dials it, or waits to."""
        self.refusals = 0
        """Connections in a row that were closed at once, or before the peer has answered CONNECT."""

    @property
    def hosts(self) -> list[str]:
        """The host and port of each known URL."""
        return list(self._urls)

    def shuffled(self) -> list[URL]:
        """Return the known URLs in random order."""
        return random.sample(list(self._urls.values()), len(self._urls))

    def replace_discovered(self, hosts: Iterable[str]) -> None:
        """Know the configured URLs and those that the cluster tells of now (updateURLs)."""
        self._urls = dict(self.configured)
        self.add(hosts)

    def add(self, hosts: Iterable[str]) -> None:
        """Know more URLs (addURLs); what is no URL is left out."""
        for host in hosts:
            try:
                url = replace(parse_url(f"nats://{host}"), path="")
            except ValueError:
                continue
            if url.host not in self._urls and len(self._urls) < len(self.configured) + MOST_URLS:
                self._urls[url.host] = url
                self.tls_name.save((url,))
