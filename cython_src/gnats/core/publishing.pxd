"""Check, map, trace and route the messages that a connection publishes (processInboundClientMsg of client.go).

Only the owner calls these functions.
"""
from libc.stddef cimport size_t

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.message cimport Message
from gnats.core.routing.route cimport RouteOutcome


# Set the fields that all messages of a connection have in common; no reply, no other subject shown.
cdef inline void begin_message(Subscriber c, Message *m) noexcept nogil:
    m.ps = c.ps
    m.origin = <void *> c
    m.account = c.account
    m.remote = NULL
    m.shown.p = m.reply.p = NULL
    m.shown.n = m.reply.n = 0
    m.hop = NULL
    m.trace = NULL


# Handle a message from a client: map it as its account does, check its subject and reply, trace it, route it.
cdef void process_inbound_client_msg(Subscriber c, Message *m) noexcept nogil
# Map a message as its account does, which has mappings. Return whether it has another subject now.
cdef bint map_published(Subscriber c, Message *m) noexcept nogil
# Trace a message over max_payload, if the part of its header that has been read asks for it.
cdef void trace_too_large(Subscriber c, Message *m) noexcept nogil
# Route a message in its account, unchecked and unmapped.
cdef RouteOutcome route_msg(Subscriber c, const Message *m) noexcept nogil
# Publish in any account, within a batch of the connection's poller. `subject` selects the subscribers; they see `shown`
# (NULL: `subject`). Header and payload need not be adjacent; `reply` and `hdr` may be NULL. A lack of memory is logged.
# A message handler may call it while another message is being routed.
cdef RouteOutcome send_internal_msg(Subscriber c, Account account, const char *subject, size_t sn, const char *shown,
                                    size_t shown_n, const char *reply, size_t rn, const char *hdr, size_t hn,
                                    const char *msg, size_t n) noexcept nogil
