"""Errors for a person to read (errors.go), each in one line."""


class ServerError(Exception):
    """The server cannot start or go on: a port in use, a file that cannot be written."""


class OptionError(Exception):
    """A command line or a configuration that cannot be used."""


class RequestError(Exception):
    """A question that cannot be answered; the text is for the one who asked."""


class FilteredError(RequestError):
    """A question to others than this server, which is not to be answered."""
