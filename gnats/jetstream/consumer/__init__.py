"""Consumers: deliveries, acknowledgements, redeliveries and pull requests."""
