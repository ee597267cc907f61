"""Send what answers a mapped reply, and take what arrives (handleGWReplyMap, handleGatewayReply in gateway.go).

An answer goes to the cluster that the mapped reply names, whatever interest says, and to hubs. There it is forwarded to
the server that has mapped the reply: that one delivers it under the plain reply, as if it had been published there.
"""
from gnats.core.accounts.account cimport Account
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.message cimport Message, RemoteArgs
from gnats.core.routing.route cimport RouteOutcome
from gnats.core.runtime.slice cimport Slice
from gnats.core.runtime.state cimport ServerState


# A client publishes to a reply of which it may have been sent the mapped one. If so, send the message, and return True.
cdef bint answer_request(Subscriber c, const Message *m) noexcept nogil
# A mapped reply that this server publishes to is its own, since the request has come back to this server, or its
# answer: change it to the plain one, and return True. Any other is for send_answer().
cdef bint is_back(ServerState server, Slice *subject) noexcept nogil
# Send a message whose subject is a mapped reply, of another server.
cdef RouteOutcome send_answer(const Message *m, Account account) noexcept nogil
# A message whose subject is a mapped reply has arrived from another server. Forward or drop it and return False. Or
# leave it to the caller, to be routed: m.subject is the plain reply then, and m.remote is `own`, except that a server
# without gateways leaves it as it is.
cdef bint take_answer(Subscriber c, Message *m, RemoteArgs *own) noexcept nogil
