"""The values that options have."""
