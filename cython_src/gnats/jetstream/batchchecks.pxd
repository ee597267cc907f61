"""May a message of a batch be stored? (checkMsgHeadersPreClusteredProposal of jetstream_batching.go)

Of an atomic batch all are checked before the first is stored, each as if those before it were: they are given as a
list. A message of a fast batch is alone. The stream's lock is held.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t

from gnats.jetstream.engine cimport Local
from gnats.jetstream.inbound cimport Checked, Inbound, Outcome
from gnats.jetstream.streamcore cimport StreamCore


# A message of a batch: it, its header and its subject in one piece of memory.
cdef struct Staged:
    Staged *next
    Inbound m
    uint32_t subject_hash
    uint32_t id_hash             # of its message id, 0 without one
    char *transformed            # its subject, when it is another one; to be freed


# What come before a message in its batch: from `first` up to `until`, the message itself; both NULL without any.
cdef struct Before:
    const Staged *first
    const Staged *until
    uint64_t n
    uint64_t bytes               # of them in the store


# MSG_STORED: it may. MSG_DUPLICATE: its id has been stored, as `seq`, or comes before it (seq 0); nobody has been told.
# MSG_REFUSED: its reply has been told why. A schedule gets its rollup.
cdef Outcome check_batched(StreamCore s, Local *local, Inbound *m, const Before *before,
                           uint64_t *seq) noexcept nogil
# What it takes in the stream's store.
cdef size_t stored_size(StreamCore s, const Inbound *m) noexcept nogil
# Store it without an answer; True when others have been purged. It has been checked. part: of an atomic batch.
cdef bint store_batched(StreamCore s, Local *local, Inbound *m, Checked *c, bint part) noexcept nogil
