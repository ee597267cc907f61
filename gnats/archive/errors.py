"""The errors of the archive."""


class ArchiveError(Exception):
    """An error in one line for a person: the failure and its place."""
