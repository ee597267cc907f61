"""Clients of other languages, and files shared with nats-server, with every server."""
