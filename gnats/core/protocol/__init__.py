"""The protocol's text: what comes in, and the answers."""
