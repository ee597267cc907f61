"""TLS by OpenSSL: contexts made of certificates and rules."""

from collections.abc import Iterable

from gnats.core.tls.tlsstate import TLSBase

class TLSError(Exception):
    """OpenSSL does not accept certificates, keys or rules; the text says why."""

class TLSContext(TLSBase):
    """Certificates and rules for handshakes, with clients and with servers that are dialled.

    It is not changed once a connection uses it.

    `min_version` is 0x0303 or 0x0304. `ciphers` (for TLS 1.2; empty disables it) and `groups` are OpenSSL's
    lists. `pinned` are the SHA-256 digests of the peers' keys that are accepted; None: all. `rate_limit` is
    in handshakes a second, 0: no limit. Raises TLSError, MemoryError.
    """

    def __init__(
        self,
        *,
        min_version: int,
        ciphers: str,
        groups: str,
        pinned: Iterable[bytes] | None = None,
        rate_limit: int = 0,
    ) -> None: ...
    @property
    def verify(self) -> bool:
        """Whether a peer must present a certificate."""
    def add_certificate(self, cert_pem: bytes, key_pem: bytes) -> None:
        """Add a certificate (PEM of a chain, its own first) and its key. Raises TLSError, MemoryError.

        A handshake uses the first certificate that fits.
        """
    def verify_peers(self, ca_pem: bytes | None) -> None:
        """Require a certificate from each peer, issued by one of these authorities; None: the system's.

        The certificate of a server that is dialled must be one for its host, too. Raises TLSError.
        """
    def not_after(self) -> tuple[int, int, int, int, int, int] | None:
        """Return the expiry of the first certificate, (year, month, day, hour, minute, second) in UTC."""
    def take_blocked(self) -> int:
        """Return the number of handshakes that the rate limit has refused since the last call."""

def openssl_cipher(iana_name: str) -> str | None:
    """Return OpenSSL's name of a cipher suite of TLS 1.2 or earlier; None when it has no such suite."""

def knows_group(name: str) -> bool:
    """Return whether this OpenSSL has a group (curve) with this name."""
