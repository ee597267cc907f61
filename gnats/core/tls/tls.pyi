"""TLS by OpenSSL: contexts made of certificates and rules."""

from collections.abc import Iterable

from gnats.core.tls.tlsstate import TLSBase

class TLSError(Exception):
    """Certificates, keys or rules that OpenSSL does not take; the text is the reason."""

class TLSContext(TLSBase):
    """Certificates and rules for handshakes; used by start_tls of a connection, and not changed after that.

    `min_version` is 0x0303 or 0x0304; `ciphers` (of TLS 1.2) and `groups` are OpenSSL's lists, `pinned`
    SHA-256 digests of public keys, `rate_limit` handshakes a second. Raises TLSError.
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
        """Whether a client must have a certificate."""
    def add_certificate(self, cert_pem: bytes, key_pem: bytes) -> None:
        """Serve this certificate where it fits a hello better than those before. Raises TLSError."""
    def require_client_certificates(self, ca_pem: bytes | None) -> None:
        """Ask clients for a certificate of these authorities, or of the system's. Raises TLSError."""
    def not_after(self) -> tuple[int, int, int, int, int, int] | None:
        """When the first certificate expires: year, month, day, hour, minute, second in UTC."""
    def take_blocked(self) -> int:
        """How many handshakes the rate limit has refused since this was asked last."""

def openssl_cipher(iana_name: str) -> str | None:
    """OpenSSL's name of a cipher suite of TLS 1.2 or before, None when it has no such suite."""

def knows_group(name: str) -> bool:
    """Whether this OpenSSL has a group (curve) of this name."""
