"""Helpers shared by the tests: server processes, raw connections, exchanges of bytes."""
