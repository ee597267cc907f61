"""What is at the other end of a connection."""

CLIENT: int
ROUTER: int
GATEWAY: int
SYSTEM: int
LEAF: int
JETSTREAM: int
ACCOUNT: int
