"""Errors with a text of one line for users (errors.go)."""


class ServerError(Exception):
    """The server cannot start or continue: a port is in use, a file cannot be written."""


class OptionError(Exception):
    """A command line or a configuration that cannot be used."""


class RequestError(Exception):
    """A request that cannot be answered; the requester gets the text."""


class FilteredError(RequestError):
    """A request whose filter excludes this server: it sends no answer."""
