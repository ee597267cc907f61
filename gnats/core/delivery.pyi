"""The receiving half of a connection that subscribes."""

from gnats.core.imports import Importer

class Deliverer(Importer):
    """A connection that messages are delivered to; see Client."""
