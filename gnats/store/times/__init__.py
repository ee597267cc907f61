"""Calendar, time zones, durations and schedules' patterns."""
