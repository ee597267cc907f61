"""Connections: sockets, outbound memory, transports, log records; no protocol."""
