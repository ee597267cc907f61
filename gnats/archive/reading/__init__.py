"""Streams read from their files: a store's, or a backup's."""
