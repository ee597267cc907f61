"""The TLS half of a connection as its I/O sees it."""

class TLSBase:
    """What connections know of a gnats.core.tls.tls.TLSContext."""
