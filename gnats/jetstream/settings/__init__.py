"""Configurations of streams and consumers: their fields, rules, defaults, and reservations."""
