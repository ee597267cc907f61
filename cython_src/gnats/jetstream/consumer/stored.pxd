"""The stored state of a consumer: where it goes on after a restart, or at another server.

A log alone changes it, by stored_apply(), in the order of its entries. No lock of its own: the owner's is held.
"""
from libc.stdint cimport uint64_t

from gnats.jetstream.consumer.acked cimport Acked
from gnats.jetstream.consumer.consumerentry cimport ConsumerEntry, ConsumerOutcome, SeqPair
from gnats.jetstream.consumer.pending cimport Pending
from gnats.jetstream.consumer.settings cimport ConsumerSettings
from gnats.store.format.codec cimport ConsumerSnapshot


cdef struct StoredState:
    SeqPair delivered, floor   # last delivery and ack floor, where skipped messages do not count
    Pending pending            # the delivered messages; their queue and their deadlines are not stored


# Apply an entry. acked: gets the sequences that an OP_ACKED acknowledges; NULL: the caller does not need them.
cdef ConsumerOutcome stored_apply(StoredState *s, const ConsumerSettings *cfg, const ConsumerEntry *e,
                                  Acked *acked) noexcept nogil
# Forget the messages below a sequence: the stream has them no more.
cdef void stored_forget_below(StoredState *s, uint64_t first) noexcept nogil
# Copy the state, for the caller to encode and free. False when out of memory.
cdef bint stored_snapshot(const StoredState *s, ConsumerSnapshot *snap) noexcept nogil
# Become what a snapshot says, without the counts of messages below the sequence `first`. False when out of memory.
cdef bint stored_restore(StoredState *s, const ConsumerSettings *cfg, const ConsumerSnapshot *snap,
                         uint64_t first) noexcept nogil
