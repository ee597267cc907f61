"""The log's lines, and where they go."""
