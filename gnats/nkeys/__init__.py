"""Nkeys, and a server's identity made of them."""
