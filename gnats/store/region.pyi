"""Mappings of store files."""

def faults_seen() -> int:
    """Pages of store files that could not be read since the process began."""
