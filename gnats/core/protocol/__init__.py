"""The protocol: its parser, and the server's answers."""
