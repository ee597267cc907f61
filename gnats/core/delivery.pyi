"""Messages on their way to subscribers."""

from gnats.core.imports import Importer

class Deliverer(Importer):
    """A connection that messages come from and go to; see Client."""
