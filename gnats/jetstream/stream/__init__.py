"""Streams: storing, reading and expiring messages; sourcing and schedules."""
