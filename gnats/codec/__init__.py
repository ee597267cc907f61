"""Compression, for whatever needs it: files of streams, backups, links between servers."""
