"""What a poller lends to its connections; see pollstate.pxd."""


cdef class PollerBase:
    """A poller as its connections know it."""
