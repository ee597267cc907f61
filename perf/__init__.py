"""Measure gnats and nats-server in turn. See README.md."""
