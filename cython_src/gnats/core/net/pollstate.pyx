"""The part of a poller that its connections use; see pollstate.pxd."""


cdef class PollerBase:
    """The part of a core.poller.Poller that a connection needs."""
