"""Reads certificates, for those who map their names to users or show them."""

Moment = tuple[int, int, int, int, int, int]
"""Year, month, day, hour, minute, second in UTC."""

def read_certificate(
    der: bytes,
) -> tuple[list[list[tuple[str, str]]], list[str], list[str], list[str], bytes, Moment, Moment]:
    """(subject, emails, dns_names, uris, spki, not_before, not_after): the subject as RDNs of (dotted OID,
    value), the public key as DER. Raises ValueError when `der` is no certificate."""

def verify_error_text(error: int) -> str:
    """OpenSSL's words for why a certificate was not accepted."""
