"""URLs as Go's net/url reads them, as far as addresses of servers need it (url.Parse)."""

import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from gnats.go.hostport import split_host_port

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_USER_INFO = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")
_HOST = re.compile(r"[^\x00-\x20\"<>\\^`{|}\x7f]*")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PORT = re.compile(r"(:[0-9]*)?")


@dataclass(frozen=True, slots=True)
class URL:
    """A URL's parts. `host` is host, host:port or [address]:port; `password` is None without one."""

    scheme: str = ""
    user: str = ""
    password: str | None = field(default=None, repr=False)
    host: str = ""
    path: str = ""
    """Empty or, after a host, with its slash."""
    opaque: str = ""
    """What follows the scheme without a slash: the port of "localhost:4222", whose scheme is localhost."""

    def address(self) -> tuple[str, str]:
        """Return (host, port) as text. Raises OptionError when there are not both."""
        return split_host_port(self.host)

    def hostname(self) -> str:
        """Return the host without its port, an address of IPv6 without brackets (Hostname)."""
        if self.host.startswith("["):
            return self.host[1 : self.host.rindex("]")]
        return self.host.rpartition(":")[0] if ":" in self.host else self.host

    def redacted(self) -> str:
        """Return the URL as text, for the log: with xxxxx for a password (Redacted)."""
        scheme = f"{self.scheme}:" if self.scheme else ""
        if self.opaque:
            return scheme + self.opaque
        user = quote(self.user, safe="$&+,;=") + ("" if self.password is None else ":xxxxx")
        authority = f"{user}{'@' if user else ''}{self.host}"
        slashes = "//" if authority else ""
        return f"{scheme}{slashes}{authority}{self.path}"


def parse_url(text: str) -> URL:
    """Read a URL. Its query and fragment are dropped. Raises ValueError for what Go refuses."""
    if any(char < " " or char == "\x7f" for char in text):
        raise ValueError("invalid control character in URL")
    if text.startswith(":"):
        raise ValueError("missing protocol scheme")
    text = text.partition("#")[0]
    scheme = ""
    if found := _SCHEME.match(text):
        scheme, text = found[1].lower(), text[found.end() :]
    text = text.partition("?")[0]
    if not text.startswith("//"):
        if not scheme and ":" in text.partition("/")[0]:
            raise ValueError("first path segment in URL cannot contain colon")
        if scheme and not text.startswith("/"):
            return URL(scheme, opaque=text)
        _check_escapes(text)
        return URL(scheme, path=text)
    authority, slash, path = text[2:].partition("/")
    _check_escapes(slash + path)
    user_info, at, host = authority.rpartition("@")
    if not _USER_INFO.fullmatch(user_info):
        raise ValueError("invalid userinfo")
    _check_escapes(user_info)
    user, colon, password = user_info.partition(":")
    return URL(scheme, unquote(user), unquote(password) if at and colon else None, _host(host), slash + path)


def _host(host: str) -> str:
    if host.startswith("["):
        inside, bracket, port = host[1:].rpartition("]")
        if not bracket:
            raise ValueError("missing ']' in host")
        address, percent, zone = inside.partition("%25")
        host = f"[{address}{percent and '%'}{zone}]{port}"
        if "%" in address:
            raise ValueError("invalid URL escape in host")
    else:
        colon = host.rfind(":")
        port = host[colon:] if colon >= 0 else ""
        _check_escapes(host)
        host = unquote(host)
    if not _PORT.fullmatch(port):
        raise ValueError(f"invalid port {port} after host")
    if not _HOST.fullmatch(host):
        raise ValueError("invalid character in host name")
    return host


def _check_escapes(text: str) -> None:
    if _ESCAPE.search(text):
        raise ValueError("invalid URL escape")
