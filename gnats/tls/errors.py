"""Texts of TLS handshake errors: Go's (crypto/tls) where Go has one, else OpenSSL's."""

import os
import sys
from datetime import UTC, datetime
from ipaddress import ip_address

from gnats.core.tls.x509 import verify_error_text
from gnats.tls.certs import PeerCertificate

_EOF, _SYSCALL, _NOT_PINNED, _NO_MEMORY = -1, -2, -3, -4  # core.tls.tlsstate
_ERR_LIB_SSL = 20
_ALERT = 1000  # OpenSSL adds this to the number of a received alert
_VERIFY_FAILED = 134
_NO_CERTIFICATE = 199
_NOT_YET_VALID = 9
_EXPIRED = 10
_WRONG_HOST = 62
_COMMON_NAME = "2.5.4.3"
_MOST_NAMES = 100
"""Of a certificate with so many names, none is written."""

_REASONS = {
    101: "no ECDHE curve supported by both client and server",
    155: "first record does not look like a TLS handshake",
    156: "first record does not look like a TLS handshake",
    193: "no cipher suite supported by both client and server",
    _NO_CERTIFICATE: "client didn't provide a certificate",
    258: "client offered only unsupported versions",
    267: "first record does not look like a TLS handshake",
    295: "no ECDHE curve supported by both client and server",
    410: "no ECDHE curve supported by both client and server",
}
"""By OpenSSL's reason code."""

_ALERTS = {
    10: "unexpected message",
    20: "bad record MAC",
    22: "record overflow",
    40: "handshake failure",
    42: "bad certificate",
    43: "unsupported certificate",
    44: "revoked certificate",
    45: "expired certificate",
    46: "unknown certificate",
    47: "illegal parameter",
    48: "unknown certificate authority",
    49: "access denied",
    50: "error decoding message",
    51: "error decrypting message",
    70: "protocol version not supported",
    71: "insufficient security level",
    80: "internal error",
    86: "inappropriate fallback",
    90: "user canceled",
    100: "no renegotiation",
    109: "missing extension",
    110: "unsupported extension",
    112: "unrecognized name",
    115: "unknown PSK identity",
    116: "certificate required",
    120: "no application protocol",
}

_VERIFICATION = {
    2: "certificate signed by unknown authority",
    _NOT_YET_VALID: "certificate has expired or is not yet valid",
    _EXPIRED: "certificate has expired or is not yet valid",
    18: "certificate signed by unknown authority",
    19: "certificate signed by unknown authority",
    20: "certificate signed by unknown authority",
    21: "certificate signed by unknown authority",
    26: "certificate specifies an incompatible key usage",
}
"""By OpenSSL's X509_V_ERR code."""


def handshake_error(code: int, data: bytes) -> str:
    """Return the text for a LOG_TLS_ERROR; core.tls.tlstransport describes the layout of `data`."""
    detail = int.from_bytes(data[:4], sys.byteorder, signed=True)
    text, host, chain = data[4:].split(b"\0", 2)
    if code == _EOF:
        return "EOF"
    if code == _SYSCALL:
        return f"read: {os.strerror(detail).lower()}" if detail else "tls: connection broken"
    if code == _NOT_PINNED:
        return "certificate not pinned"
    if code == _NO_MEMORY:
        return "out of memory"
    library, reason = code >> 23 & 0xFF, code & 0x7FFFFF
    if library == _ERR_LIB_SSL:
        if reason == _VERIFY_FAILED:
            try:
                why = _refusal(detail, host, _certificates(chain))
            except ValueError as exc:
                peer = "server" if host else "client"
                return f"tls: failed to parse certificate from {peer}: x509: {exc}"
            return f"tls: failed to verify certificate: x509: {why}"
        if reason in _REASONS:
            return f"tls: {_REASONS[reason]}"
        if reason > _ALERT:
            return f"remote error: tls: {_ALERTS.get(reason - _ALERT, f'alert({reason - _ALERT})')}"
    return f"tls: {text.decode('ascii', 'replace')}"


def _certificates(chain: bytes) -> list[PeerCertificate]:
    found = []
    while chain:
        size = int.from_bytes(chain[:4], sys.byteorder)
        found.append(PeerCertificate.from_der(chain[4 : 4 + size]))
        chain = chain[4 + size :]
    return found


def _refusal(error: int, host: bytes, shown: list[PeerCertificate]) -> str:
    """Return why certificates were refused, and their names: "... (subject SHA-256: digest; ...)"."""
    why = _VERIFICATION.get(error) or verify_error_text(error)
    if error == _WRONG_HOST and shown:
        why = _wrong_host(shown[0], host.decode(errors="replace"))
    now = datetime.now(UTC)
    for cert in shown if error in (_NOT_YET_VALID, _EXPIRED) else ():
        if now < cert.not_before:
            why += f": current time {_rfc3339(now)} is before {_rfc3339(cert.not_before)}"
        elif now > cert.not_after:
            why += f": current time {_rfc3339(now)} is after {_rfc3339(cert.not_after)}"
    names = "; ".join(f"{cert.subject} SHA-256: {cert.cert_sha256}" for cert in shown)
    return f"{why} ({names})" if names else why


def _wrong_host(cert: PeerCertificate, host: str) -> str:
    """Return why a certificate is not one for a host (HostnameError of crypto/x509)."""
    others = cert.emails or cert.uris
    if not (cert.dns_names or cert.addresses or others) and _common_name(cert).lower() == host.lower():
        return "certificate relies on legacy Common Name field, use SANs instead"
    numeric = _is_address(host)
    if numeric and not cert.addresses:
        return f"cannot validate certificate for {host} because it doesn't contain any IP SANs"
    names = cert.addresses if numeric else cert.dns_names
    if not names:
        return f"certificate is not valid for any names, but wanted to match {host}"
    if len(names) >= _MOST_NAMES:
        kind = "IP SANs" if numeric else "names"
        return f"certificate is valid for {len(names)} {kind}, but none matched {host}"
    return f"certificate is valid for {', '.join(names)}, not {host}"


def _common_name(cert: PeerCertificate) -> str:
    return next((value for rdn in cert.rdns for oid, value in rdn if oid == _COMMON_NAME), "")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _rfc3339(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")
