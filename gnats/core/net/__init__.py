"""Connections: sockets, outbound memory, transports. They know no protocol."""
