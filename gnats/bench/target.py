"""The target of a load: a server's address, and the CONNECT that connections send."""

import socket
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from gnats.bench.results import LoadError
from gnats.go.json import compact


@dataclass(frozen=True, slots=True)
class Target:
    """A server's address (IPv4, or a name that resolves to one) and the credentials."""

    host: str
    port: int
    user: str = ""
    password: str = ""
    token: str = ""
    tls: bool = False

    @classmethod
    def parse(cls, url: str) -> "Target":
        """Parse `[nats://|tls://][user[:password]@]host[:port]`; a user without a password is a token.

        Raises ValueError for another scheme or an invalid port.
        """
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        if parts.scheme not in ("nats", "tcp", "tls"):
            raise ValueError(
                f"server {url!r}: the load generator speaks nats:// and tls://, not {parts.scheme}://"
            )
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        token = user if user and parts.password is None else ""
        host, port, tls = parts.hostname or "127.0.0.1", parts.port or 4222, parts.scheme == "tls"
        return cls(host, port, "" if token else user, password, token, tls)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def resolve(self) -> str:
        """Return the IPv4 address in dotted form. Raises LoadError when there is none."""
        try:
            found = socket.getaddrinfo(self.host, self.port, socket.AF_INET, socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise LoadError(f"server {self}: {error.strerror}") from None
        return str(found[0][4][0])

    def hello(self) -> bytes:
        """Return CONNECT and a PING, whose PONG confirms that the server has accepted the client."""
        options: dict[str, object] = {
            "verbose": False,
            "pedantic": False,
            "echo": True,
            "headers": True,
            "no_responders": True,
            "protocol": 1,
            "lang": "cython",
            "version": "0.1",
            "name": "gnats bench",
        }
        given = {"user": self.user, "pass": self.password, "auth_token": self.token}
        options.update({key: value for key, value in given.items() if value})
        return b"CONNECT %s\r\nPING\r\n" % compact(options, ascii=True).encode()
