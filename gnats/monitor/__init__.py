"""Monitoring (monitor.go): what the server knows about itself, as plain data and over HTTP."""
