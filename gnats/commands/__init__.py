"""The gnats-server command: its command line, signals, service managers, and a small process."""
