"""Certificates on monitoring pages."""

from binascii import Error, a2b_base64
from functools import lru_cache
from pathlib import Path

from gnats.go.text import SECOND, rfc3339
from gnats.tls.certs import PeerCertificate

_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"


def not_after(path: str) -> str:
    """Return when the first certificate of a PEM file expires, "" when it cannot be read."""
    try:
        return _not_after(path, Path(path).stat().st_mtime_ns)
    except (OSError, ValueError, Error):
        return ""


@lru_cache(maxsize=8)
def _not_after(path: str, mtime: int) -> str:
    _, _, rest = Path(path).read_bytes().partition(_BEGIN)
    cert = PeerCertificate.from_der(a2b_base64(rest.partition(_END)[0]))
    return rfc3339(int(cert.not_after.timestamp()) * SECOND)


def peer_certs(chain: list[bytes]) -> list[dict[str, str]]:
    """Return the subject and fingerprints of DER certificates (TLSPeerCert in monitor.go)."""
    certs = (PeerCertificate.from_der(der) for der in chain)
    return [
        {"subject": cert.subject, "spki_sha256": cert.spki_sha256, "cert_sha256": cert.cert_sha256}
        for cert in certs
    ]
