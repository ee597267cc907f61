"""TLS by OpenSSL; nothing here is loaded before a server needs it."""
