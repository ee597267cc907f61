"""What the archive cannot do."""


class ArchiveError(Exception):
    """One line that a person can act on: what, and where."""
