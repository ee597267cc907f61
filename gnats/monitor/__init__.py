"""Monitoring (monitor.go): pages about the server as plain data, over HTTP and in the system account."""
