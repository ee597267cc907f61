"""Authorize servers by the names in their certificates (isRouterAuthorized, isGatewayAuthorized)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gnats.go.text import quote
from gnats.go.url import URL
from gnats.options.values.tls import TLSOptions

if TYPE_CHECKING:
    from gnats.tls.certs import PeerCertificate


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options ask of servers that connect."""

    username: str
    """"": no login."""
    password: str = field(repr=False)
    tls: TLSOptions | None
    urls: tuple[URL, ...]
    """The servers of the configuration."""


def check_certificate(der: bytes | None, wanted: Wanted) -> tuple[bool, str]:
    """Check whether a server with this certificate (DER) may connect; return this and a debug line.

    With `verify_and_map` one of its names is the user that is wanted; with `check_known_urls`, one of its DNS
    names is a host of the configured URLs. Passwords do not count then.
    """
    from gnats.tls.certs import PeerCertificate

    tls = wanted.tls
    assert tls
    if der is None:
        return False, "User required in cert, no peer certificates found"
    try:
        cert = PeerCertificate.from_der(der)
    except ValueError as exc:
        return False, f"User required in cert, which cannot be read: {exc}"
    for kind, name in _names(cert):
        known = kind == "SAN" and tls.check_known_urls and is_known(name, wanted.urls)
        mapped = tls.verify_and_map and name == wanted.username
        if name and (known or mapped):
            what = f"{kind} found in cert" if kind in ("email", "SAN", "URI") else kind
            return True, f"Using {what} for auth [{quote(name)}]"
    return False, f"User in cert [{quote(cert.subject_names)}], not found"


def _names(cert: "PeerCertificate") -> Iterable[tuple[str, str]]:
    for kind, names in (("email", cert.emails), ("SAN", cert.dns_names), ("URI", cert.uris)):
        yield from ((kind, name) for name in names)
    from gnats.tls.certmap import subject_with_components

    yield "RDNSequence", subject_with_components(cert)
    yield "certificate subject", cert.subject_names


def is_known(name: str, urls: Iterable[URL]) -> bool:
    """Check whether a certificate's DNS name is a host of these URLs (dnsAltNameMatches).

    Its first label may be "*", any label.
    """
    labels = name.lower().split(".")
    for url in urls:
        host = url.hostname().lower().split(".")
        first = 1 if labels[0] == "*" else 0
        if len(host) == len(labels) and host[first:] == labels[first:]:
            return True
    return False
