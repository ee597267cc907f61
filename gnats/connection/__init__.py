"""The protocol texts of connections: INFO, CONNECT, close reasons, log lines."""
