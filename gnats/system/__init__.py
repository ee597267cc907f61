"""The process and its files."""
