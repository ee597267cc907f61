"""A remote of the configuration: the URLs to dial, in which order, and when (leafNodeCfg)."""

import random
from collections.abc import Iterable
from dataclasses import replace

from gnats.cluster.tls_name import is_address
from gnats.go.url import URL, parse_url
from gnats.options.values.leafnodes import RemoteLeafOptions

DISCOVERED = "nats-leaf"
"""The scheme of URLs that the other server tells of."""


class Remote:
    """A remote: its options, and the state of dialling it."""

    def __init__(self, options: RemoteLeafOptions) -> None:
        self.options = options
        self.urls = list(options.urls)
        if not options.no_randomize:
            random.shuffle(self.urls)
        self.current: URL | None = None
        self.tls_required = options.tls is not None
        """Use TLS; also learned from the other server."""
        self.tls_name = ""
        """The host that certificates of servers that are dialled by address must be for."""
        self.delay = 0.0
        """Seconds before the next attempt: the other server refused the connection, or there was a loop."""
        self.met = False
        """The other server has dialled at the same time, since the last connection that has joined."""
        self.dialling = False
        """A task dials it, or waits to."""
        self.valid = True
        """The configuration has it, and it is not disabled."""
        self._user = ""
        self._password: str | None = None
        for url in self.urls:
            self._save(url)

    def _save(self, url: URL) -> None:
        """Keep the first name and the first login among the URLs, for those that have none."""
        name = url.hostname()
        if not self.tls_name and name and not is_address(name):
            self.tls_name = name
        if not self._user and url.user:
            self._user, self._password = url.user, url.password

    def next_url(self) -> URL:
        """Return the URL to dial: the first one, or the next when that was the last one dialled."""
        urls = self.urls
        if len(urls) > 1 and self.current == urls[0]:
            urls.append(urls.pop(0))
        self.current = urls[0]
        return self.current

    def login(self, url: URL) -> tuple[str, str, str]:
        """Return (user, password, token) for a server; a user without a password is a token, too."""
        user, password = (url.user, url.password) if url.user else (self._user, self._password)
        return user, password or "", user if password is None else ""

    def host(self, url: URL) -> str:
        """Return the host that the certificate of the server at a URL must be for."""
        name = url.hostname()
        return self.tls_name if self.tls_name and is_address(name) else name

    def discovered(self, addresses: Iterable[str]) -> list[str]:
        """Use the addresses that the other server tells of, before the configured URLs.

        Return those that are no URLs. Earlier ones are forgotten.
        """
        configured = {url.host for url in self.options.urls}
        found, bad = [], []
        for address in addresses:
            try:
                url = parse_url(f"{DISCOVERED}://{address}")
            except ValueError:
                bad.append(address)
                continue
            if url.host not in configured:
                found.append(replace(url, path=""))
                self._save(url)
        self.urls = [*found, *self.options.urls]
        return bad
