"""The errors that end a start, each one line for a person."""


class ServerError(Exception):
    """The server cannot start or go on: a port in use, a file that cannot be written."""


class OptionError(Exception):
    """A command line or a configuration that cannot be used."""
