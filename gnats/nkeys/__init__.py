"""Nkeys, and the server's identity."""
