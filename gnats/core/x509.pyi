"""Reads certificates, for those who map their names to users or show them."""

def read_certificate(
    der: bytes,
) -> tuple[list[list[tuple[str, str]]], list[str], list[str], list[str], bytes]:
    """(subject, emails, dns_names, uris, spki): the subject as RDNs of (dotted OID, value), the public key as
    DER. Raises ValueError when `der` is no certificate."""

def verify_error_text(error: int) -> str:
    """OpenSSL's words for why a certificate was not accepted."""
