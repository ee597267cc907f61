"""Dates, time zones, durations, and the patterns of schedules."""
