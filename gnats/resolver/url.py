"""The URL resolver: JWTs from an HTTP server, one GET for each account (URLAccResolver in accounts.go)."""

import ssl
from urllib.parse import urlsplit, urlunsplit

from gnats.errors import ServerError

try:
    import aiohttp
except ImportError:
    raise ServerError(
        "Can't start the URL resolver: it needs aiohttp; install it with: pip install 'gnats[monitor]'"
    ) from None

from gnats.go.text import quote
from gnats.options.values.tls import TLSOptions
from gnats.resolver.base import ResolverError

_MAX_BODY = 1 << 20
"""Bytes that a JWT may have."""
_PLAIN = "identity"
_IDLE_CONNECTIONS = 10
_IDLE_TIMEOUT = 30.0


class URLResolver:
    """Fetches <url>/<public key>; a fetch may take `timeout` seconds."""

    kind = "url"
    read_only = True
    tracks_updates = False

    def __init__(self, url: str, timeout: float, tls: TLSOptions | None = None) -> None:
        self._url = url if url.endswith("/") else url + "/"
        self._timeout = timeout
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Check that the base URL answers. Raises ResolverError."""
        await self.fetch("")

    async def fetch(self, account: str) -> str:
        """Get the JWT of an account; "" gets the base URL. Raises ResolverError."""
        url = self._url + account
        where = f"could not fetch <{quote(_redacted(url))}>"
        try:
            async with self._client().get(url) as response:
                if response.status != 200:
                    raise ResolverError(f"{where}: {response.status} {response.reason}")
                coding = response.headers.get("Content-Encoding", _PLAIN)
                if coding.lower() != _PLAIN:
                    raise ResolverError(
                        f"{where}: the answer is compressed ({coding}), which was not asked for"
                    )
                body = bytearray()
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > _MAX_BODY:
                        raise ResolverError(f"{where}: more than {_MAX_BODY} bytes")
        except TimeoutError:
            raise ResolverError(f"{where}: no answer within {self._timeout:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise ResolverError(f"{where}: {exc}") from None
        return body.decode("utf-8", "replace")

    async def store(self, account: str, token: str) -> None:
        raise ResolverError("store operation not supported for URL Resolver")

    async def reload(self) -> None:
        """Do nothing: no JWT is stored here."""

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _client(self) -> "aiohttp.ClientSession":
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit_per_host=_IDLE_CONNECTIONS, keepalive_timeout=_IDLE_TIMEOUT, ssl=_context(self._tls)
                ),
                timeout=aiohttp.ClientTimeout(total=self._timeout),
                headers={"Accept-Encoding": _PLAIN},
                auto_decompress=False,  # _MAX_BODY would not limit the size of a decompressed answer
            )
        return self._session


def _context(tls: TLSOptions | None) -> ssl.SSLContext | bool:
    """Make the TLS context for the HTTP server: CAs and client certificates. Raises ResolverError."""
    if tls is None:
        return True
    try:
        context = ssl.create_default_context(cafile=tls.ca_file or None)
        context.minimum_version = (
            ssl.TLSVersion.TLSv1_3 if tls.min_version == "1.3" else ssl.TLSVersion.TLSv1_2
        )
        pairs = [(tls.cert_file, tls.key_file)] if tls.cert_file else []
        for cert_file, key_file in (*pairs, *tls.certificates):
            context.load_cert_chain(cert_file, key_file)
    except OSError as exc:  # ssl.SSLError too
        raise ResolverError(f"resolver_tls: {exc}") from None
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _redacted(url: str) -> str:
    """Replace the URL's password."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username}:xxxxx@{host}"))
