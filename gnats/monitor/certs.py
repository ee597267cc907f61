"""What monitoring says about certificates."""

import hashlib
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gnats.certmap import rdn_sequence
from gnats.gofmt import rfc3339


def not_after(path: str) -> str:
    """When the first certificate of a PEM file expires; "" when it cannot be read."""
    try:
        return _not_after(path, Path(path).stat().st_mtime_ns)
    except (OSError, ValueError):
        return ""


@lru_cache(maxsize=8)
def _not_after(path: str, mtime: int) -> str:
    cert = x509.load_pem_x509_certificate(Path(path).read_bytes())
    return rfc3339(int(cert.not_valid_after_utc.timestamp()) * 1_000_000_000)


def peer_certs(chain: list[bytes]) -> list[dict[str, str]]:
    """Subject and fingerprints of DER certificates (TLSPeerCert in monitor.go)."""
    return [_peer_cert(der) for der in chain]


def _peer_cert(der: bytes) -> dict[str, str]:
    cert = x509.load_der_x509_certificate(der)
    key = cert.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return {
        "subject": rdn_sequence(cert.subject),
        "spki_sha256": hashlib.sha256(key).hexdigest(),
        "cert_sha256": hashlib.sha256(der).hexdigest(),
    }
