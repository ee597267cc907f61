"""Fast batches: messages that are stored as they come, and acknowledged many at a time (processJetStreamFastBatchMsg of
stream.go; ADR-50).

A message's reply subject names its fast batch and an operation:

    <prefix>.<id>.<messages for each acknowledgement>.<ok|fail: gaps>.<sequence in the fast batch>.<operation>.$FI

A stream keeps only numbers of a fast batch. It sends the publisher flow control (`{"type":"ack"...}`) after every so
many messages, reports a gap (`"gap"`) and a message that could not be stored (`"err"`) as they occur, and acknowledges
the end like that of a single message, with the batch's id and size. A fast batch that allows no gap ends at its first.
"""
from libc.stdint cimport uint64_t

from gnats.core.runtime.slice cimport Slice
from gnats.includes.text cimport ends_with_text
from gnats.jetstream.engine.barrier cimport JsPoller
from gnats.jetstream.publish.inbound cimport Inbound
from gnats.jetstream.state.batchtable cimport OpenBatch
from gnats.jetstream.state.entry cimport FastPattern, Outcome, StreamEntry
from gnats.jetstream.state.streamcore cimport StreamCore


cdef inline bint is_fast_batch(const Slice *reply) noexcept nogil:
    return ends_with_text(reply.p, reply.n, b".$FI")


# Parse a reply subject that ends in .$FI; the result borrows it. False when it is malformed.
cdef bint parse_fast_pattern(const Slice *reply, FastPattern *out) noexcept nogil

# The stream's lock is held for all of these.

# Handle a message of a fast batch, and answer it. `pattern` is the reply subject that its publisher wrote, for which
# is_fast_batch() is true.
cdef Outcome process_fast_batch_msg(StreamCore s, JsPoller *jp, Inbound *m, const Slice *pattern) noexcept nogil
# Note that an OF_FAST entry is the stream's last stored message, and send its publisher what is due
# (fastBatchRegisterSequences).
cdef void fast_batch_stored(StreamCore s, JsPoller *jp, const StreamEntry *e, uint64_t seq) noexcept nogil
# Forget an open fast batch.
cdef void drop_fast_batch(StreamCore s, OpenBatch *b) noexcept nogil
# Forget all open fast batches of the stream.
cdef void drop_fast_batches(StreamCore s) noexcept nogil
