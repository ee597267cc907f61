"""Message blocks: N.blk files and their records, or the same records in memory (the msgBlock of filestore.go).

A block is read through its *body*: the read-only mapping of its file, or anonymous memory with the records of a memory
store, or of a file that is compressed or encrypted. Its *slots* hold the offset of each message's record.
`block_unload` frees body and slots of a block that is not in use; its counts and its deleted sequences stay.

New records wait in `wbuf` until `block_flush` writes them all with one call. Readers get them from there until then.

The caller of any function here holds the store's lock, except where the comment says otherwise. Memory that readers
may point into is retired (core.runtime.quiesce), not freed.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.includes.pthread cimport pthread_mutex_t
from gnats.store.format.highway cimport HighwayKey
from gnats.store.format.record cimport Record
from gnats.store.format.region cimport Region
from gnats.store.index.seqset cimport SeqSet

cdef enum:
    SEAL_KEY = 64         # size of a seal_key in bytes
    MAX_GAP = 1 << 24     # sequences between two records of a block; more are taken for damage

cdef enum BodyKind:
    BODY_NONE
    BODY_MAPPED
    BODY_MEMORY


cdef struct Sealer:
    # Encryption as a table of functions, filled by gnats.store.sealing: a store without it does not load OpenSSL. All
    # functions return 0 or an errno. *key is malloc'd, SEAL_KEY bytes.
    # new_key makes a block's key and its N.key file, open_key reads that (ENOENT: none, the block is not encrypted).
    int (*new_key)(Sealer *self, int dirfd, uint32_t index, void **key) noexcept nogil
    int (*open_key)(Sealer *self, int dirfd, uint32_t index, void **key) noexcept nogil
    # Encrypt or decrypt n bytes in place that are at an offset of the block's file.
    int (*apply)(const void *key, uint64_t offset, char *p, size_t n) noexcept nogil
    # Encrypt index.db to n + overhead bytes, decrypt it to n - overhead.
    int (*seal)(Sealer *self, const char *p, size_t n, char *out) noexcept nogil
    int (*unseal)(Sealer *self, const char *p, size_t n, char *out) noexcept nogil
    size_t overhead


cdef struct BlockEnv:
    # State that the blocks of one store share; under the store's lock, except sync_error.
    bint in_memory
    bint compress         # compress a block when it is full, or rewritten
    bint sync_always      # sync newer records before a file that they replace is removed or rewritten
    int storefd           # the directory of the stream; -1: none
    int dirfd             # msgs/ in it; -1: none
    size_t block_size     # bytes
    char *name            # of the stream
    uint32_t name_n
    Sealer *sealer        # NULL: plain files
    uint32_t tick         # counts calls of unload_idle(), the clock of MsgBlock.used
    uint32_t loaded       # blocks with a body
    bint dir_dirty        # msgs/ has entries that are not synced
    uint32_t dir_syncing  # threads that sync msgs/ without the lock
    uint64_t damaged      # records found unreadable since the store was opened
    int error             # errno of the first write or sync that failed, or 0; not 0: the store is frozen
    bint sync_failed      # a sync failed: what is on the disk is not known
    pthread_mutex_t sync_lock    # a leaf: held during an fsync, guards sync_error
    int sync_error        # errno of the first sync that failed, or 0
    char what[160]        # the operation and the file that `error` is about


cdef struct MsgBlock:
    uint32_t index
    uint64_t first_seq, last_seq      # without messages first_seq == last_seq + 1
    int64_t first_ts, last_ts         # ns since 1970; 0: unknown, or no message
    uint64_t low_seq                  # no message stored in the block had a smaller sequence
    uint64_t msgs, bytes              # messages that are not deleted
    uint64_t rbytes                   # bytes of all records, deleted messages and tombstones included
    uint64_t ttls, schedules          # messages with a TTL, with a schedule, ever stored in the block
    SeqSet dmap                       # sequences without a message between first_seq and last_seq
    uint64_t checksum                 # of the last record
    HighwayKey key
    # body
    BodyKind kind
    Region *region
    uint64_t flushed                  # records before this offset are in the file
    uint64_t flushed_last             # last_seq and last_ts at the last flush
    int64_t flushed_ts
    char *wbuf                        # the records in [flushed, rbytes) of a BODY_MAPPED block
    size_t wroom                      # size of wbuf
    bint wlent                        # a reader may have a pointer into wbuf
    uint32_t used                     # BlockEnv.tick at the last use
    # slots: slot k is of sequence base_seq + k, or of base_seq + rel[k] where rel is not NULL
    uint64_t base_seq
    uint32_t n_slots, slot_room
    uint32_t *offs                    # offset of the record; NO_SLOT: deleted
    uint32_t *rel
    uint32_t *links                   # sequences from this message to the next one of its subject; 0: not known
    # file
    void *seal_key                    # malloc'd; NULL: the file is not encrypted
    int fd                            # of the last block, else -1
    bint last                         # new records go to this block
    bint need_sync                    # the file has changes that are not synced
    bint need_key_sync                # so has N.key, which is synced before the file
    uint32_t syncing                  # threads that sync the file without the lock
    bint packed                       # the file is compressed or encrypted: the body is in memory
    bint no_compact                   # the last rewrite did not make it small enough: wait for more deletions
    bint indexed                      # the slots are loaded
    bint to_pack                      # the file is due to be compressed
    bint resolved                     # the subjects that index.db knows by this block alone were looked up in it
    uint64_t rewrites                 # times its records were replaced
    bint pinned                       # dmap lacks deleted sequences (no memory), the slots have them: do not unload
    bint damaged                      # some of its records could not be read

cdef extern from * nogil:
    """
    #define GNATS_NO_SLOT 0xffffffffu
    """
    const uint32_t NO_SLOT "GNATS_NO_SLOT"


# Return the offset of the next whole record after damage at p[at]; n: there is none. Sequences of records only grow:
# `last` is the greatest one before. The payload of a damaged message is not searched for records.
cdef size_t record_resync(const HighwayKey *key, const char *p, size_t n, size_t at, uint64_t last) noexcept nogil

# Make a block without a file or a body. NULL: no memory.
cdef MsgBlock *block_alloc(BlockEnv *env, uint32_t index) noexcept nogil
# Make a new last block, with its file. NULL: env.error says why; if that is 0, for want of memory.
cdef MsgBlock *block_create(BlockEnv *env, uint32_t index, uint64_t first_seq) noexcept nogil
# Free a block; its files stay.
cdef void block_free(BlockEnv *env, MsgBlock *b) noexcept nogil
# Remove a block's files. 0 or -errno.
cdef int block_unlink(BlockEnv *env, MsgBlock *b) noexcept nogil

# Load body and slots, and check every record. 0; -errno: the file cannot be read at all. Records that cannot be read
# get no slot, and set b.damaged.
cdef int block_load(BlockEnv *env, MsgBlock *b) noexcept nogil
# Load the body alone. 0 or -errno.
cdef int block_open_body(BlockEnv *env, MsgBlock *b) noexcept nogil
# Retire the body and free the slots.
cdef void block_unload(BlockEnv *env, MsgBlock *b) noexcept nogil

# Return the address of an offset, in the body or in wbuf.
cdef inline const char *block_at(MsgBlock *b, uint64_t offset) noexcept nogil:
    if offset >= b.flushed and b.kind == BODY_MAPPED:
        return b.wbuf + (offset - b.flushed)
    return b.region.base + offset


cdef inline uint64_t slot_seq(const MsgBlock *b, uint32_t k) noexcept nogil:
    return b.base_seq + (b.rel[k] if b.rel != NULL else k)


# Do slot_from() for a block with `rel`.
cdef uint32_t slot_from_gaps(const MsgBlock *b, uint64_t seq) noexcept nogil

# Return the first slot whose sequence is at or after seq; n_slots when there is none.
cdef inline uint32_t slot_from(const MsgBlock *b, uint64_t seq) noexcept nogil:
    if seq <= b.base_seq or b.n_slots == 0:
        return 0
    if b.rel == NULL:
        return <uint32_t> min(seq - b.base_seq, <uint64_t> b.n_slots)
    return slot_from_gaps(b, seq)


# Return the slot of a sequence; NO_SLOT: it has no message. The block is loaded.
cdef inline uint32_t slot_of(const MsgBlock *b, uint64_t seq) noexcept nogil:
    cdef uint32_t k
    if seq < b.base_seq:
        return NO_SLOT
    k = slot_from(b, seq)
    if k < b.n_slots and slot_seq(b, k) == seq and b.offs[k] != NO_SLOT:
        return k
    return NO_SLOT


# Parse the record of slot k, without its checksum. False: there is no message of the slot's sequence (damage; sets
# b.damaged).
cdef bint block_record(BlockEnv *env, MsgBlock *b, uint32_t k, Record *r) noexcept nogil
# Add a slot for a sequence greater than all others of the block. 0, -1: no memory.
cdef int block_push_slot(MsgBlock *b, uint64_t seq, uint32_t offset) noexcept nogil

# Reserve n bytes at the end; block_commit follows. NULL: no memory, or the flush of a full wbuf failed (env.error).
cdef char *block_reserve(BlockEnv *env, MsgBlock *b, size_t n) noexcept nogil
# Make the n bytes that were written to reserved memory part of the block; `checksum` is of the last record in them.
cdef void block_commit(MsgBlock *b, size_t n, uint64_t checksum) noexcept nogil
# Encode a record of record_size() bytes at p; return its checksum (0 in memory, where records have none).
cdef uint64_t block_encode(
    BlockEnv *env, MsgBlock *b, char *p, uint64_t seq, int64_t ts, const char *subject, size_t subject_n,
    const char *hdr, size_t hdr_n, const char *msg, size_t msg_n,
) noexcept nogil
# Write the records that wait. 0, or -errno: env.error is set.
cdef int block_flush(BlockEnv *env, MsgBlock *b) noexcept nogil
# Drop the records that wait. The caller drops their slots.
cdef void block_drop_pending(BlockEnv *env, MsgBlock *b) noexcept nogil
# Make a block no longer the last one: close its file. It was flushed before.
cdef void block_seal(BlockEnv *env, MsgBlock *b) noexcept nogil

# Rewriting. block_replace() replaces all records of a block by the n bytes at `data`, and drops the slots. It frees
# `data`, which is malloc'd. `pack`: compress the file, if the store compresses and the block is not the last. 0 or
# -errno. A thread that must not hold the lock so long rewrites in two steps. block_write() writes and syncs N.blk.tmp
# without the lock (`pack`: compressed; 0 or an errno). block_adopt() renames it with the lock (0 or -errno).
cdef int block_write(
    const BlockEnv *env, int dirfd, uint32_t index, const void *seal_key, const char *data, size_t n, bint pack,
) noexcept nogil
cdef int block_adopt(BlockEnv *env, MsgBlock *b, size_t n) noexcept nogil
cdef int block_replace(BlockEnv *env, MsgBlock *b, char *data, size_t n, bint pack) noexcept nogil
# Open the file of the block that new records will go to. 0 or -errno.
cdef int block_open_last(BlockEnv *env, MsgBlock *b) noexcept nogil
# Truncate the file at an offset; no reader may have the block yet. 0 or -errno.
cdef int block_cut(BlockEnv *env, MsgBlock *b, uint64_t offset) noexcept nogil
# Rename the file to N.blk.bad, and its key to N.key.bad. 0 or -errno.
cdef int block_set_aside(BlockEnv *env, MsgBlock *b) noexcept nogil
# Return a new descriptor of the file to sync first: the key's, else the block's. Clear need_key_sync or need_sync:
# the caller syncs the descriptor and closes it. -errno: no descriptor, and nothing has changed.
cdef int block_sync_fd(BlockEnv *env, MsgBlock *b) noexcept nogil
# Sync key and file if they need it. 0, or -errno: env.error is set.
cdef int block_sync(BlockEnv *env, MsgBlock *b) noexcept nogil

# Freeze the store: set env.error and env.what, unless an earlier failure did. `index` is the block's. Return -err.
cdef int env_fail(BlockEnv *env, int err, const char *what, uint32_t index) noexcept nogil
# The same for a sync; also set env.sync_failed.
cdef int env_sync_failed(BlockEnv *env, int err, uint32_t index) noexcept nogil
# Sync a file or a directory, with or without the store's lock. 0 or an errno. After one failure all later calls fail.
cdef int env_sync(BlockEnv *env, int fd, bint directory) noexcept nogil
