"""Deliver messages to connections of other pollers.

The first message of a batch for such a connection goes straight into its `remote` queue, under its lock. Later
ones are kept in a Handoff of the sending poller, and put there together: one lock and one wake for many messages. A
message is not kept when something depends on its delivery: a request, a message of a stream, or one for a queue group.
Nor is it kept when another subscriber may see it already: that one could answer it to the subscriber that has yet to
get it.

Handoffs never outlive the batch that made them, so a Subscription or Connection in one is alive. Everything handed off
is in its connection's `remote` before any client can see an effect of what the publisher sent later. So
hand_over_first() of PollState runs before this poller writes to a socket, delivers a message at once, calls a native
subscription (a stream may store the message, and another poller deliver it), posts to the control plane, changes
subscriptions, or ends its batch.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t

from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.encode cimport Frame
from gnats.core.messages.message cimport Message
from gnats.core.net.outbound cimport OutQueue
from gnats.core.net.pollstate cimport PollState
from gnats.core.routing.delivery cimport Egress, Shown
from gnats.core.subjects.sublist cimport Subscription


# Adjacent frames of one size for one subscription.
cdef struct Run:
    Subscription *sub     # NULL: a link's
    uint32_t n
    uint32_t size         # bytes of each frame on the wire,
    uint32_t payload      # and of its header and payload


# Messages of this batch for one connection of another poller. Only the poller whose PollState has it touches it.
cdef struct Handoff:
    void *client          # the last Subscriber that had a message; borrowed, and good only while `frames` has any
    uint64_t batch        # PollState.wakeups then
    void *producer        # borrowed Connection that published last
    OutQueue frames
    Run *runs             # what is in `frames`, in order
    size_t n, cap


cdef enum:
    PLACE_BITS = 6
    PLACES = 1 << PLACE_BITS   # connections that a poller keeps messages for at a time


# What PollState.handoffs points to.
cdef struct Handoffs:
    Shown shown           # first
    Handoff at[PLACES]


# Queue a message to a connection of another poller, or keep it for hand_over(). `s` is NULL for a link, which gets one
# message for many subscriptions, whichever of them end meanwhile.
cdef Egress deliver_remote(Subscriber c, const Message *m, Subscription *s, const Frame *f) noexcept nogil
cdef void handoffs_free(PollState *ps) noexcept nogil
