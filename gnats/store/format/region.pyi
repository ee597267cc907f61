"""Mappings of store files."""

def faults_seen() -> int:
    """Return the number of pages of store files that could not be read since the process began."""
