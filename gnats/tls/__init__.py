"""TLS: contexts, certificates and their names, texts of handshake errors."""
