"""The log and its destinations: streams, files, syslog."""
