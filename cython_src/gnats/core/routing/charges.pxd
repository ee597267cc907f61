"""Which account behind a link an event is charged to (core.runtime.inbox)."""
from libc.stdint cimport uint32_t

from gnats.core.messages.message cimport Message


# Return a hash of the account of the clients that have caused a message. In the system account this is the requester's,
# as the other server says in Nats-Request-Info. 0: what the message causes is charged to the connection itself.
cdef uint32_t charged_account(const Message *m) noexcept nogil
