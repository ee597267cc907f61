"""TLS by OpenSSL, which is loaded when a server needs it."""
