"""Messages on their way into a stream (processInboundJetStreamMsg of stream.go).

A stream's subscriptions are native: whoever delivers a message calls process_inbound_jetstream_msg in place, which
checks it, stores it and notes the reply. The order of the checks, the replies and their texts are nats-server's.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t

from gnats.core.message cimport Message
from gnats.core.parser cimport Slice
from gnats.core.sublist cimport Subscription
from gnats.jetstream.engine cimport Local
from gnats.jetstream.headers cimport MsgHeaders
from gnats.jetstream.streamcore cimport StreamCore


# A message in hand. `hdr` is in memory of ours when `owned` is, else in the poller's buffer.
cdef struct Inbound:
    Slice subject
    Slice reply          # n is 0 without one
    char *hdr
    size_t hdr_n
    const char *msg
    size_t n
    char *owned          # to be freed
    char *counted        # the payload that an increment made, to be freed; `val` is the number in it
    Slice val
    Slice batch          # the id of the batch that it ends, of batch_n messages; p is NULL otherwise
    uint64_t batch_n
    uint8_t unheard      # nobody was there to take it: the stream was just being closed
    uint8_t told_as      # a ToldAs: how its publisher is told why it is refused
    uint64_t flow_seq    # of TOLD_IN_FLOW
    uint64_t seq         # of a mirror's message: its sequence, which must be the next one, and ts; else 0
    int64_t ts
    MsgHeaders h


cdef enum ToldAs:
    TOLD = 0             # if the stream answers publishers
    TOLD_ALWAYS = 1
    TOLD_IN_FLOW = 2     # always, as of flow_seq of its batch


cdef enum Outcome:
    MSG_STORED = 0
    MSG_DUPLICATE = 1    # there is one with its id
    MSG_LIMITED = 2      # there is no room, with discard new
    MSG_REFUSED = 3      # for another reason, which the publisher has been told if there is one


cdef enum:
    MAX_RECORD = 32 * 1024 * 1024   # bytes
    MAX_HEADER = 65535

cdef enum Rollup:
    NO_ROLLUP = 0
    ROLLUP_SUBJECT = 1
    ROLLUP_ALL = 2


# What is found out about a message before it is stored.
cdef struct Checked:
    Rollup rollup
    int64_t ttl          # seconds
    Slice msg_id         # n is 0 without one
    Outcome outcome
    bint unscheduled     # it has ended a schedule
    bint part            # of an atomic batch


# What is kept between take() and after_take().
cdef struct Taken:
    Checked c
    char *subject        # that the stream's transform made of the message's; NULL: it is as it was
    bint purged


# The function of a stream's NativeSub; ctx is the StreamCore.
cdef bint process_inbound_jetstream_msg(void *ctx, const Message *msg, const Subscription *sub) noexcept nogil
# A message of the server itself, or of another stream when `sourced`, which is stored as it is.
cdef void process_jetstream_msg(StreamCore s, Local *local, Inbound *m, bint sourced) noexcept nogil
# The same in two steps, for who holds the stream's lock: the first with it, the second after leave().
cdef Outcome take(StreamCore s, Local *local, Inbound *m, bint sourced, Taken *t) noexcept nogil
cdef void after_take(StreamCore s, const Inbound *m, Taken *t) noexcept nogil

# -- for batches; the lock is held. Checks are False when the message is refused, which its reply has been told then. --
cdef bint refuse(StreamCore s, Local *local, const Inbound *m, int err_code) noexcept nogil
# With text behind what the error says.
cdef bint refuse_with(StreamCore s, Local *local, const Inbound *m, int err_code, const char *text,
                      size_t n) noexcept nogil
# `last` is the stream's last sequence, or that of a subject.
cdef bint refuse_sequence(StreamCore s, Local *local, const Inbound *m, uint64_t last,
                          bint of_subject) noexcept nogil
cdef bint refuse_store(StreamCore s, Local *local, const Inbound *m, const char *why, size_t n) noexcept nogil
cdef void refuse_rollup(StreamCore s, Local *local, const Inbound *m) noexcept nogil
cdef bint check_increment(StreamCore s, Local *local, const Inbound *m) noexcept nogil
cdef bint check_last_msg_id(StreamCore s, Local *local, const Inbound *m) noexcept nogil
cdef Rollup rollup_of(const Slice *v) noexcept nogil
# Bytes of it in a file.
cdef size_t record_size(const Inbound *m) noexcept nogil
# Have the header in memory where it may be changed, and grow by 128 bytes. False when out of memory.
cdef bint own_header(Inbound *m) noexcept nogil
# Its subject becomes what the stream's transform makes of it, in memory[0] to be freed if not NULL.
cdef bint transform_subject(StreamCore s, Local *local, Inbound *m, char **memory) noexcept nogil
# Store it; c.outcome is MSG_STORED then. True when others have been purged.
cdef bint store_checked(StreamCore s, Local *local, Inbound *m, Checked *c) noexcept nogil
# Reply that it is stored, with the counter or the batch that it is of.
cdef void acknowledge(StreamCore s, Local *local, const Inbound *m) noexcept nogil
