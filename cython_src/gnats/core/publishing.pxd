"""Messages that a connection publishes: check them, map them, trace them, route them (processInboundClientMsg of
client.go). All the owner's."""
from libc.stddef cimport size_t

from gnats.core.account cimport Account
from gnats.core.message cimport Message
from gnats.core.subscriber cimport Subscriber


# Set what all messages of a connection have in common; shown as their subject, without a reply.
cdef inline void begin_message(Subscriber c, Message *m) noexcept nogil:
    m.ps = c.ps
    m.origin = <void *> c
    m.account = c.account
    m.shown.p = m.reply.p = NULL
    m.shown.n = m.reply.n = 0
    m.hop = NULL
    m.trace = NULL


# Handle a message that a client has sent.
cdef void process_inbound_client_msg(Subscriber c, Message *m) noexcept nogil
# Trace a message that is over the largest payload, if what has come of its header asks for it.
cdef void trace_too_large(Subscriber c, Message *m) noexcept nogil
# Deliver to the subscribers in the account; True when one received it.
cdef bint route_msg(Subscriber c, const Message *m) noexcept nogil
# Publish in any account, from within a batch of the connection's poller: to who is subscribed to `subject`, shown as
# `shown` (NULL: as it is). Header and payload need not be adjacent, reply and header may be NULL. True when somebody
# received it. Hooks and native subscribers may call it while it is running: what is in hand stays.
cdef bint send_internal_msg(Subscriber c, Account account, const char *subject, size_t sn, const char *shown,
                            size_t shown_n, const char *reply, size_t rn, const char *hdr, size_t hn, const char *msg,
                            size_t n) noexcept nogil
