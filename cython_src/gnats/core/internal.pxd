"""The server's own subscribers (createInternalClient of server.go): they have no socket, and speak no protocol.

The control plane has one for each account that it subscribes in, and one for the system account; it gets their messages
as EV_MSG. JetStream has one for each poller, which publishes, and one for each stream, whose subscriptions are native.
"""
from gnats.core.accounts.subscriber cimport Subscriber


cdef class InternalSubscriber(Subscriber):
    cdef object __weakref__
