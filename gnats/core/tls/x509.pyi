"""Read certificates with OpenSSL, to map their names to users and to show them."""

Moment = tuple[int, int, int, int, int, int]
"""Year, month, day, hour, minute, second in UTC."""

def read_certificate(
    der: bytes,
) -> tuple[list[list[tuple[str, str]]], list[str], list[str], list[bytes], list[str], bytes, Moment, Moment]:
    """Return (subject, emails, dns_names, addresses, uris, spki, not_before, not_after) of a DER certificate.

    `subject` is a list of RDNs as encoded, each a list of (dotted OID, value). `addresses` are bytes, 4 or 16
    each. `spki` is the DER of its public key, a SubjectPublicKeyInfo. Raises ValueError for anything but a
    certificate.
    """

def verify_error_text(error: int) -> str:
    """Return OpenSSL's text for an error of certificate verification."""
