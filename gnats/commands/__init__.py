"""The gnats-server command: its command line, signals and service managers."""
