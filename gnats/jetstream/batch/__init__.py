"""Atomic and fast batches."""
