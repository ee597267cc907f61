"""Fast batches: messages that are stored as they come, and acknowledged many at once (processJetStreamFastBatchMsg of
stream.go; ADR-50).

A message says by its reply subject which batch it is of, and what it does there:

    <prefix>.<id>.<messages for each acknowledgement>.<gap>.<sequence in the batch>.<operation>.$FI

Nothing of a batch is kept but numbers. Its publisher is sent flow control (`{"type":"ack"...}`) each so many messages,
and at once what is missing (`"gap"`) and what could not be stored (`"err"`); in the end an acknowledgement as for any
message, with the id and the size of the batch. A batch that may have no gaps ends with the first.
"""
from gnats.core.slice cimport Slice
from gnats.includes.text cimport ends_with_text
from gnats.jetstream.barrier cimport Local
from gnats.jetstream.batchtable cimport OpenBatch
from gnats.jetstream.entry cimport Entry, FastPattern, Outcome
from gnats.jetstream.inbound cimport Inbound
from gnats.jetstream.streamcore cimport StreamCore


cdef inline bint is_fast_batch(const Slice *reply) noexcept nogil:
    return ends_with_text(reply.p, reply.n, b".$FI")


# False for a pattern that is none, of a reply subject that ends in .$FI.
cdef bint parse_fast_pattern(const Slice *reply, FastPattern *out) noexcept nogil
# A message whose reply subject, as its publisher wrote it, is_fast_batch(); the lock is held.
cdef Outcome process_fast_batch_msg(StreamCore s, Local *local, Inbound *m, const Slice *pattern) noexcept nogil
# An entry of a batch is the last that has been stored: tell its publisher (fastBatchRegisterSequences).
cdef void fast_batch_stored(StreamCore s, Local *local, const Entry *e) noexcept nogil
# Forget it; the lock is held.
cdef void drop_fast_batch(StreamCore s, OpenBatch *b) noexcept nogil
cdef void drop_fast_batches(StreamCore s) noexcept nogil
