"""A message on its way from its publisher to its subscribers.

Whoever publishes makes one, on the stack, and routes it (core.route). What lies behind an import is another message,
made from it; nobody changes one that is passed on. All that it points to is good until the call that it is passed to
returns.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

from gnats.core.msgtrace cimport MsgTrace
from gnats.core.pollstate cimport PollState
from gnats.core.responses cimport ServiceExport
from gnats.core.slice cimport Slice
from gnats.core.sublist cimport Subscription
from gnats.includes.text cimport NUMBER_ROOM, put_number


# One service import, or response, that a message has come through.
cdef struct Hop:
    const Hop *before
    ServiceExport *se
    uint32_t depth
    uint8_t request        # 0: a response
    uint8_t share          # this import's
    uint8_t details        # what the header says about the requester: all that is shared,
    uint8_t server         # or the server's name at least
    Slice reply            # the first import's, if it is of a fast batch, which is told by it; n is 0 otherwise
    # The requester, for the server's own services. They read it here, never in a header, which a client can write.
    void *account          # of a request: borrowed Account, the one that imports
    Slice info             # the requester as JSON, what the header says; n is 0 where it says nothing


cdef struct Message:
    PollState *ps          # the calling poller's, which owns `origin`
    void *origin           # borrowed core.client.Client, the publisher
    void *account          # borrowed Account that the publisher speaks for; imports do not change it
    Slice subject          # selects the subscribers
    Slice shown            # the subject that subscribers are sent; p is NULL: `subject`
    Slice reply            # p is NULL without one; one of no bytes keeps its place in the line
    char *data             # header and payload, adjacent
    size_t n               # bytes of both
    size_t hdr             # bytes of the header, 0 without one
    Slice hdr_text         # `hdr` in decimal; nothing when it is 0
    Slice n_text           # `n` in decimal
    char *line             # "PUB subject [reply] size\r\n" or HPUB before the data, single blanks, writable; or NULL
    uint8_t ended          # CR LF follows the data in memory
    const Hop *hop         # the last import that it came through; NULL for none
    MsgTrace *trace        # NULL: it is not traced


cdef inline Slice message_shown(const Message *m) noexcept nogil:
    """The subject that subscribers are sent."""
    return m.shown if m.shown.p != NULL else m.subject


cdef inline size_t message_bytes(const Message *m) noexcept nogil:
    """Bytes at `data`, its CR LF included."""
    return m.n + 2 if m.ended else m.n


# Bytes that message_set_data needs for the sizes as text.
cdef enum:
    SIZES_ROOM = 2 * NUMBER_ROOM


cdef inline void message_set_data(Message *m, char *data, size_t hdr, size_t n, char *sizes) noexcept nogil:
    """Give a message n bytes, the first `hdr` of them its header, no CR LF behind; `sizes` lives as long as it does."""
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


# Takes a message in place. No lock is held. It may publish with another client (PollState.js), or pass the message on,
# changed, for its origin. False: nobody received the message.
ctypedef bint (*MessageHandler)(void *ctx, const Message *m, const Subscription *s) noexcept nogil


# Stands before a subscription in its block if a function takes its messages (SUB_NATIVE, SUB_SERVICE, SUB_RESPONSES),
# after all other subscribers.
cdef struct NativeSub:
    MessageHandler fn
    void *ctx              # lives until every poller has been between two batches since the unsubscription


cdef inline NativeSub *native_sub(const Subscription *s) noexcept nogil:
    return <NativeSub *> (<char *> s - sizeof(NativeSub))
