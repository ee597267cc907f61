"""Consumers: what they deliver, what is acknowledged."""
