"""Encoding of the state files: index.db of a stream, o.dat of a consumer (filestore.go, store.go).

Decoding treats its input as untrusted: it checks a length against the bytes that are left before it allocates for it.
These functions neither encrypt nor check files. The file index.db is encrypted with the stream's key, if the store has
one, and ends with its HighwayHash-64 under the stream's name; o.dat is encrypted only.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.store.index.seqset cimport SeqSet
from gnats.store.index.stree cimport STree

cdef enum:
    INDEX_MAGIC = 11
    INDEX_VERSION = 4         # the version written; 1 to 4 are read
    CONSUMER_MAGIC = 22
    CONSUMER_VERSION = 2      # the version written; 1 and 2 are read

cdef enum CodecError:
    CODEC_BAD = -1
    CODEC_NO_MEMORY = -2


cdef struct IndexBlock:
    uint64_t bytes, first_seq, last_seq
    int64_t first_ts, last_ts      # ns since 1970
    uint64_t ttls, schedules       # messages with a TTL, with a schedule
    SeqSet deleted                 # borrowed for encoding; owned after decoding
    uint32_t index


cdef struct IndexState:
    uint64_t msgs, bytes, first_seq, last_seq
    int64_t first_ts, last_ts
    STree *subjects                # of SimpleState; the file has its msgs, first_block and last_block; the caller's
    IndexBlock *blocks             # malloc'd by decoding
    size_t n_blocks
    uint32_t last_block            # index of the last block, and the checksum of its last record: the index ends there
    uint64_t last_checksum


# Encode an index into a malloc'd buffer, with `front` bytes before and `back` bytes after it for a nonce, a tag and a
# checksum. `n` is the size of the index alone. 0 or CODEC_NO_MEMORY.
cdef int index_encode(const IndexState *s, size_t front, size_t back, uint8_t **out, size_t *n) noexcept nogil
# Decode an index into a zeroed struct with an empty tree in s.subjects. 0 or a CodecError; then there are no blocks,
# and the tree is empty.
cdef int index_decode(IndexState *s, const uint8_t *data, size_t n) noexcept nogil
cdef void index_free(IndexState *s) noexcept nogil        # free the blocks and their sets, not the tree
# Decode an index and make `tree` for it; the caller frees both. Raises ValueError or MemoryError.
cdef int index_load(IndexState *s, STree *tree, bytes data) except -1


cdef struct PendingEntry:
    uint64_t stream_seq, consumer_seq
    int64_t ts                     # when it was delivered, ns since 1970; the file has whole seconds


cdef struct RedeliveredEntry:
    uint64_t seq, count


cdef enum:
    MAX_POSITION = 0x7fffffffffffffff    # a state with greater positions is malformed; no stream has such sequences


cdef struct ConsumerSnapshot:
    uint64_t delivered_consumer, delivered_stream    # at most MAX_POSITION, as the next two
    uint64_t floor_consumer, floor_stream
    PendingEntry *pending          # malloc'd by decoding
    size_t n_pending
    RedeliveredEntry *redelivered  # malloc'd by decoding
    size_t n_redelivered


# Return the most bytes that consumer_encode() writes.
cdef size_t consumer_bound(const ConsumerSnapshot *s) noexcept nogil
# Encode into consumer_bound() bytes; `now` is in ns since 1970. Return the bytes written.
cdef size_t consumer_encode(const ConsumerSnapshot *s, int64_t now, uint8_t *out) noexcept nogil
# Decode into a zeroed struct. 0 or a CodecError; then the struct is zeroed again.
cdef int consumer_decode(ConsumerSnapshot *s, const uint8_t *data, size_t n) noexcept nogil
cdef void consumer_free(ConsumerSnapshot *s) noexcept nogil                # free the two arrays
