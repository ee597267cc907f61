"""Answers to a connection's peer in NATS' text protocol, +OK and -ERR: parts of a SessionType."""
from gnats.core.net.connection cimport Connection, Denial
from gnats.core.runtime.slice cimport Slice


cdef void send_ok(Connection c) noexcept nogil
# Send -ERR 'text'.
cdef void send_err(Connection c, const char *text) noexcept nogil
# Send -ERR with a permissions violation.
cdef void send_denied(Connection c, Denial what, const Slice *subject, const Slice *queue,
                      const Slice *sid) noexcept nogil
