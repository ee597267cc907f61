"""Soak test: consumers that wait, on several servers at once."""
