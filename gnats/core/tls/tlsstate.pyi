"""The TLS state of a connection, without OpenSSL."""

class TLSBase:
    """The part of gnats.core.tls.tls.TLSContext that connections call."""
