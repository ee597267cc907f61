"""TLS: contexts, certificates, and why handshakes fail."""
