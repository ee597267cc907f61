"""Consumers that wait, on servers side by side."""
