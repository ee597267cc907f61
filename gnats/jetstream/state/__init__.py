"""The state of a stream, and the entries of its log."""
