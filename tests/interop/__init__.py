"""Clients of other languages at work against every server."""
