"""/raftz (monitor.go): there are no Raft groups."""

from gnats.monitor.pages.options import RaftzOptions
from gnats.monitor.pages.render import Named, Page


class NotFoundError(Exception):
    """The requested thing does not exist; the text is for the client."""


def raftz(server: Named, options: RaftzOptions) -> Page:
    """List the Raft groups.

    Raises NotFoundError.
    """
    raise NotFoundError("No Raft nodes registered")
