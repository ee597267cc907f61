"""What any connection has: INFO, CONNECT, the reason of its end, its lines in the log."""
