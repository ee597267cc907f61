"""Requests of other servers whose answers are measured: the responder's half (trackRemoteReply in client.go).

The requester's server has given such a request a reply with its own hash and `.T` at the end. When a client here gets
it, and when that client publishes to the reply, the control plane hears of it; from the time between, and the client's
round trip time, it makes what the requester's server cannot measure: gnats.events.remote_latency.
"""
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.message cimport Message
from gnats.core.messages.reserved cimport REPLY_PREFIX
from gnats.core.runtime.slice cimport Slice
from gnats.includes.text cimport starts_with_text


cdef inline bint is_tracked_reply(const Slice *s) noexcept nogil:
    """Return whether a server has made this reply and measures the answer (isTrackedReply)."""
    return starts_with_text(s.p, s.n, REPLY_PREFIX) and s.p[s.n - 1] == c'T' and s.p[s.n - 2] == c'.'


# A request with a tracked reply, which has come over a link, goes to a client.
cdef void note_request(Subscriber client, const Message *m, const Slice *reply) noexcept nogil
# A client that was sent such requests publishes to a tracked reply.
cdef void note_answer(Subscriber c, const Slice *subject) noexcept nogil
