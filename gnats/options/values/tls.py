"""A tls block of a configuration (TLSConfigOpts in opts.go)."""

from dataclasses import dataclass

TLS_TIMEOUT = 2.0
"""Seconds for a handshake."""
_AUTH_TIMEOUT = 2.0
HANDSHAKE_FIRST_FALLBACK = 0.05
"""Seconds that the server waits for a client's hello before it sends INFO, with `handshake_first: auto`."""


@dataclass(frozen=True, slots=True)
class TLSOptions:
    """A tls block. Paths are relative to the working directory."""

    cert_file: str = ""
    key_file: str = ""
    certificates: tuple[tuple[str, str], ...] = ()
    """(cert_file, key_file) pairs; the server uses the pair that fits the client's hello."""
    ca_file: str = ""
    verify: bool = False
    verify_and_map: bool = False
    check_known_urls: bool = False
    """Between servers: accept certificates only of hosts that this server is configured to dial."""
    insecure: bool = False
    cipher_suites: tuple[str, ...] = ()
    """Names of Go and IANA, TLS_...; empty: OpenSSL's defaults."""
    curve_preferences: tuple[str, ...] = ()
    allow_insecure_cipher_suites: bool = False
    min_version: str = "1.2"
    """"1.2" or "1.3"."""
    timeout: float = TLS_TIMEOUT
    """Seconds for a handshake."""
    connection_rate_limit: int = 0
    """Handshakes that may begin per second; 0: no limit."""
    pinned_certs: frozenset[str] = frozenset()
    """Lower-case hex SHA-256 of the client's public key (SPKI); empty: any."""
    handshake_first: bool = False
    handshake_first_fallback: float = 0.0
    """Seconds to wait for the hello before the server sends INFO in clear text; 0: `timeout` seconds."""


def default_auth_timeout(tls: TLSOptions | None) -> float:
    """Return the seconds in which a peer must say who it is, handshake included (getDefaultAuthTimeout)."""
    return tls.timeout + 1 if tls else _AUTH_TIMEOUT
