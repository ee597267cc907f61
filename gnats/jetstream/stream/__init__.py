"""Streams: messages coming in, stored, read, and removed in time."""
