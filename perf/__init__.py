"""Measures gnats and nats-server side by side. See README.md."""
