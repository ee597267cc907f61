"""The state files of a store: index.db of a stream, o.dat of a consumer (filestore.go, store.go).

What these functions read is untrusted: lengths are checked against what is there before anything is allocated for
them. In the files index.db is sealed under the stream's key, if there is encryption, and followed by its HighwayHash-64
under the stream's name; o.dat is only sealed.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.store.seqset cimport SeqSet
from gnats.store.stree cimport STree

cdef enum:
    INDEX_MAGIC = 11
    INDEX_VERSION = 4         # as written; 1 to 4 are read
    CONSUMER_MAGIC = 22
    CONSUMER_VERSION = 2      # as written; 1 and 2 are read

cdef enum CodecError:
    CODEC_BAD = -1
    CODEC_NO_MEMORY = -2


cdef struct IndexBlock:
    uint64_t bytes, first_seq, last_seq
    int64_t first_ts, last_ts      # ns since 1970
    uint64_t ttls, schedules       # messages that have one
    SeqSet deleted                 # borrowed in what is written; owned in what was read
    uint32_t index


cdef struct IndexState:
    uint64_t msgs, bytes, first_seq, last_seq
    int64_t first_ts, last_ts
    STree *subjects                # of SimpleState: msgs, first_block and last_block are kept; the caller's
    IndexBlock *blocks             # malloc'd in what was read
    size_t n_blocks
    uint32_t last_block            # and its last record's checksum: the index is good for what ends with it
    uint64_t last_checksum


# Encodes an index with `front` bytes before it and `back` bytes behind it, for a nonce, a tag and a checksum.
# The buffer is malloc'd; `n` is the index's own size. 0 or CODEC_NO_MEMORY.
cdef int index_encode(const IndexState *s, size_t front, size_t back, uint8_t **out, size_t *n) noexcept nogil
# s.subjects is an empty tree and NULL everything else. 0 or a CodecError, after which there are no blocks and the
# tree is empty again.
cdef int index_decode(IndexState *s, const uint8_t *data, size_t n) noexcept nogil
cdef void index_free(IndexState *s) noexcept nogil        # the blocks and their sets
# The same with a tree that it makes. Raises ValueError, MemoryError; else both are to be freed.
cdef int index_load(IndexState *s, STree *tree, bytes data) except -1


cdef struct PendingEntry:
    uint64_t stream_seq, consumer_seq
    int64_t ts                     # ns since 1970; whole seconds in the file


cdef struct RedeliveredEntry:
    uint64_t seq, count


cdef struct ConsumerSnapshot:
    uint64_t delivered_consumer, delivered_stream
    uint64_t floor_consumer, floor_stream
    PendingEntry *pending          # malloc'd in what was read
    size_t n_pending
    RedeliveredEntry *redelivered  # malloc'd in what was read
    size_t n_redelivered


cdef size_t consumer_bound(const ConsumerSnapshot *s) noexcept nogil
# Into consumer_bound() bytes, `now` in ns since 1970; the bytes written.
cdef size_t consumer_encode(const ConsumerSnapshot *s, int64_t now, uint8_t *out) noexcept nogil
# Into a struct of zeroes. 0 or a CodecError, after which it is of zeroes again.
cdef int consumer_decode(ConsumerSnapshot *s, const uint8_t *data, size_t n) noexcept nogil
cdef void consumer_free(ConsumerSnapshot *s) noexcept nogil
