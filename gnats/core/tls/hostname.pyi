"""Check that a certificate is one for a host, as Go does."""

def matches_host(der: bytes, host: bytes) -> bool:
    """Return whether a certificate (DER) is one for a host. Raises ValueError for other bytes."""
