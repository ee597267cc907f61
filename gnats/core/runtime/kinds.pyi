"""Kinds of connections, by the peer at the other end."""

CLIENT: int
ROUTER: int
GATEWAY: int
SYSTEM: int
LEAF: int
JETSTREAM: int
ACCOUNT: int
