"""A message on its way from its publisher to its subscribers.

A publisher makes one on the stack and routes it (core.routing.route). A message is never changed once it is passed on:
an import makes another one from it. Its pointers are good until the call that it is passed to returns.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

from gnats.core.messages.msgtrace cimport MsgTrace
from gnats.core.messages.responses cimport ServiceExport
from gnats.core.net.pollstate cimport PollState
from gnats.core.net.shared cimport Shared
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription
from gnats.includes.text cimport NUMBER_ROOM, put_number


# A service import, or a response to one, that a message has come through.
cdef struct Hop:
    const Hop *before      # the one before it; NULL: none
    ServiceExport *se
    uint32_t depth         # hops, this one included
    uint8_t request        # 0: a response
    uint8_t share          # this import shares the requester's details
    uint8_t details        # the header names the requester with its details,
    uint8_t server         # or its server at least
    Slice reply            # the first import's reply if it marks a message of a fast batch; n is 0 otherwise
    # The requester, for the server's own services. They read it here and not in a header, which a client could forge.
    void *account          # of a request: borrowed Account that imports the service
    Slice info             # the requester as JSON, as in the header; n is 0 when the header does not name it


# What the server that a message came from says about it: arguments of RMSG, HMSG and LMSG.
cdef struct RemoteArgs:
    Slice origin           # LMSG of a route: the leaf node cluster that the message came from
    Slice account          # n is 0 on a connection for one account
    Slice *queues          # the queue groups to deliver to, in argv
    uint32_t nqueues
    uint32_t all_groups    # deliver to any queue group
    uint32_t passed        # deliver to queue groups alone: all others have got it already
    uint32_t returned      # it has answered a mapped reply, and may go to any gateway (core.routing.gateway_return)
    uint32_t argc, argv_cap
    Slice *argv            # all arguments


cdef struct Message:
    PollState *ps          # the calling poller's, which owns `origin`
    void *origin           # borrowed core.accounts.subscriber.Subscriber, the publisher
    void *account          # borrowed Account that the publisher publishes in; imports keep it
    const RemoteArgs *remote   # NULL: published on this server
    Slice subject          # selects the subscribers
    Slice shown            # subject that subscribers see; p is NULL: `subject`
    Slice reply            # p is NULL without one; n == 0 with p set leaves an empty place in the MSG line
    char *data             # header and payload, adjacent
    size_t n               # bytes of both
    size_t hdr             # bytes of the header, 0 without one
    Slice hdr_text         # `hdr` in decimal; n is 0 when `hdr` is 0
    Slice n_text           # `n` in decimal
    char *line             # "PUB subject [reply] size\r\n" or HPUB before the data, single blanks, writable; or NULL
    uint8_t ended          # CR LF follows the data in memory
    Shared *block          # borrowed; begins with data and CR LF, and queues may refer to it. NULL: copy the data
    const Hop *hop         # the last import that it came through; NULL: none
    MsgTrace *trace        # NULL: it is not traced
    Slice trace_dest       # destination of its traces from here on, which imports change; set only with `trace`


cdef inline Slice message_shown(const Message *m) noexcept nogil:
    """Return the subject that subscribers see."""
    return m.shown if m.shown.p != NULL else m.subject


cdef inline size_t message_bytes(const Message *m) noexcept nogil:
    """Return the number of bytes at `data`, its CR LF included."""
    return m.n + 2 if m.ended else m.n


# Bytes that message_set_data needs for the sizes as text.
cdef enum:
    SIZES_ROOM = 2 * NUMBER_ROOM


cdef inline void message_set_data(Message *m, char *data, size_t hdr, size_t n, char *sizes) noexcept nogil:
    """Set header and payload: `n` bytes at `data`, the first `hdr` of them the header, without CR LF behind them.

    `sizes` has SIZES_ROOM bytes and must live as long as the message.
    """
    m.data = data
    m.n = n
    m.hdr = hdr
    m.n_text.p = sizes
    m.n_text.n = put_number(sizes, n) - sizes
    m.hdr_text.p = NULL
    m.hdr_text.n = 0
    if hdr:
        m.hdr_text.p = sizes + NUMBER_ROOM
        m.hdr_text.n = put_number(m.hdr_text.p, hdr) - m.hdr_text.p
    m.line = NULL
    m.ended = 0
    m.block = NULL


# Handle a message in place, in the publisher's poller; no lock is held. The handler may publish with another client
# (PollState.js), or route a changed copy with the same origin. Return False when no subscriber received the message.
ctypedef bint (*MessageHandler)(void *ctx, const Message *m, const Subscription *s) noexcept nogil


# Stands before a subscription in its memory block when a function handles its messages (SUB_NATIVE, SUB_SERVICE,
# SUB_RESPONSES). Such subscribers come after all others.
cdef struct NativeSub:
    MessageHandler fn
    void *ctx              # must live until every poller has been between two batches since the unsubscription


cdef inline NativeSub *native_sub(const Subscription *s) noexcept nogil:
    return <NativeSub *> (<char *> s - sizeof(NativeSub))
