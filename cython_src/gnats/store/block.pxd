"""Message blocks: N.blk files and their records, or the same records in memory (the msgBlock of filestore.go).

A block is read through its *body*: the read-only mapping of its file, or anonymous memory that holds the records of a
memory store, or of a file that is compressed or encrypted. Its *slots* say at which offset each sequence begins. Body
and slots of blocks that are not used may go (`block_unload`); what stays is the state, and what is deleted.

Appended records wait in `wbuf` until `block_flush` writes them all with one call; readers get them from there.

Everything here needs the store's lock. What was handed to readers is retired, not freed.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.includes.pthread cimport pthread_mutex_t
from gnats.store.highway cimport HighwayKey
from gnats.store.record cimport Record
from gnats.store.region cimport Region
from gnats.store.seqset cimport SeqSet

cdef enum:
    SEAL_KEY = 64         # bytes of a seal_key

cdef enum BodyKind:
    BODY_NONE
    BODY_MAPPED
    BODY_MEMORY


cdef struct Sealer:
    # Encryption, by who has OpenSSL loaded (gnats.store.sealing); all return 0 or an errno.
    # `key` is of a block: made with its N.key file, or from it (ENOENT: there is none, the file is not encrypted).
    int (*new_key)(Sealer *self, int dirfd, uint32_t index, void **key) noexcept nogil
    int (*open_key)(Sealer *self, int dirfd, uint32_t index, void **key) noexcept nogil
    int (*apply)(const void *key, uint64_t offset, char *p, size_t n) noexcept nogil    # encrypts, decrypts; in place
    # index.db: out has room for n + overhead, or for n - overhead
    int (*seal)(Sealer *self, const char *p, size_t n, char *out) noexcept nogil
    int (*unseal)(Sealer *self, const char *p, size_t n, char *out) noexcept nogil
    size_t overhead


cdef struct BlockEnv:
    # what the blocks of one store share
    bint in_memory
    bint compress         # when a block stops being the last, or is rewritten
    bint sync_always      # what is rewritten is synced before it replaces the old
    int storefd           # the directory of the stream
    int dirfd             # msgs/ in it
    size_t block_size
    char *name            # of the stream
    uint32_t name_n
    Sealer *sealer        # NULL: plain files
    uint32_t tick         # counts calls of trim; says which blocks were not used lately
    uint32_t loaded       # blocks with a body
    bint dir_dirty        # directory entries that are not synced
    uint32_t dir_syncing  # threads that sync the directory without the lock
    uint64_t damaged      # records found unreadable since the store was opened
    int error             # errno of the write that failed first, or 0
    bint sync_failed      # a sync did: nobody knows what is on the disk
    pthread_mutex_t sync_lock    # a leaf: held while something is synced, guards sync_error
    int sync_error        # errno of the sync that failed first, or 0
    char what[160]        # which one that was


cdef struct MsgBlock:
    uint32_t index
    uint64_t first_seq, last_seq      # empty: first_seq == last_seq + 1
    int64_t first_ts, last_ts         # ns; 0: unknown, no message
    uint64_t low_seq                  # no record of a message in it has a smaller one
    uint64_t msgs, bytes              # not deleted
    uint64_t rbytes                   # of all records
    uint64_t cbytes                   # `bytes` when it was rewritten last
    uint64_t ttls, schedules          # messages with a TTL, with a schedule, since it began
    SeqSet dmap                       # deleted between first_seq and last_seq
    uint64_t checksum                 # of the last record
    HighwayKey key
    # body
    BodyKind kind
    Region *region
    uint64_t flushed                  # records before this offset are in the file
    uint64_t flushed_last             # last_seq and last_ts as of then
    int64_t flushed_ts
    char *wbuf                        # [flushed, rbytes), of a BODY_MAPPED block
    size_t wroom
    bint wlent                        # a reader has a pointer into wbuf
    uint32_t used                     # tick of the last use
    # slots: the k-th is of sequence base_seq + k, or base_seq + rel[k] if there is rel
    uint64_t base_seq
    uint32_t n_slots, slot_room
    uint32_t *offs                    # NO_SLOT: deleted
    uint32_t *rel
    uint32_t *links                   # how many sequences on the subject's next message is; 0: not known
    # file
    void *seal_key                    # malloc'd; NULL: the file is not encrypted
    int fd                            # of the last block, else -1
    bint last                         # appended to
    bint need_sync
    bint need_key_sync                # its key's file; before it
    uint32_t syncing                  # threads that sync it without the lock
    bint packed                       # the file is compressed or encrypted: the body is in memory
    bint no_compact                   # rewriting it saved nothing the last time
    bint indexed                      # it has its slots
    bint to_pack                      # it is to be compressed
    bint resolved                     # subjects known by their blocks only were looked for in it
    uint64_t rewrites                 # times its records were replaced
    bint pinned                       # its slots know what dmap had no memory for: it stays loaded
    bint damaged                      # records of it could not be read

cdef extern from * nogil:
    """
    #define GNATS_NO_SLOT 0xffffffffu
    """
    const uint32_t NO_SLOT "GNATS_NO_SLOT"


# Where the next whole record begins after damage at p[at], n when there is none. Sequences of records only grow: `last`
# is the greatest one before. The payload of a damaged message is not searched for records.
cdef size_t record_resync(const HighwayKey *key, const char *p, size_t n, size_t at, uint64_t last) noexcept nogil

cdef MsgBlock *block_alloc(BlockEnv *env, uint32_t index) noexcept nogil
# A new last block, with its file. NULL: env.error is set, or 0 for no memory.
cdef MsgBlock *block_create(BlockEnv *env, uint32_t index, uint64_t first_seq) noexcept nogil
cdef void block_free(BlockEnv *env, MsgBlock *b) noexcept nogil
cdef int block_unlink(BlockEnv *env, MsgBlock *b) noexcept nogil              # its files; 0 or -errno

# Body and slots; 0, or -errno when the file cannot be read at all. Records that cannot be read leave b.damaged.
cdef int block_load(BlockEnv *env, MsgBlock *b) noexcept nogil
cdef int block_open_body(BlockEnv *env, MsgBlock *b) noexcept nogil           # without slots
cdef void block_unload(BlockEnv *env, MsgBlock *b) noexcept nogil

cdef inline const char *block_at(MsgBlock *b, uint64_t offset) noexcept nogil:
    if offset >= b.flushed and b.kind == BODY_MAPPED:
        return b.wbuf + (offset - b.flushed)
    return b.region.base + offset


cdef inline uint64_t slot_seq(const MsgBlock *b, uint32_t k) noexcept nogil:
    return b.base_seq + (b.rel[k] if b.rel != NULL else k)


# The first slot whose sequence is at or after seq; n_slots when there is none.
cdef uint32_t slot_from_gaps(const MsgBlock *b, uint64_t seq) noexcept nogil

cdef inline uint32_t slot_from(const MsgBlock *b, uint64_t seq) noexcept nogil:
    if seq <= b.base_seq or b.n_slots == 0:
        return 0
    if b.rel == NULL:
        return <uint32_t> min(seq - b.base_seq, <uint64_t> b.n_slots)
    return slot_from_gaps(b, seq)


# The slot of a message that is there, or NO_SLOT. The block is loaded.
cdef inline uint32_t slot_of(const MsgBlock *b, uint64_t seq) noexcept nogil:
    cdef uint32_t k
    if seq < b.base_seq:
        return NO_SLOT
    k = slot_from(b, seq)
    if k < b.n_slots and slot_seq(b, k) == seq and b.offs[k] != NO_SLOT:
        return k
    return NO_SLOT


# The record of a slot: is it what was stored there? (False after damage.)
cdef bint block_record(BlockEnv *env, MsgBlock *b, uint32_t k, Record *r) noexcept nogil
cdef int block_push_slot(MsgBlock *b, uint64_t seq, uint32_t offset) noexcept nogil   # 0, -1: no memory

# Room for n bytes at the end, NULL: no memory, or writing what waits failed (env.error); then block_commit.
cdef char *block_reserve(BlockEnv *env, MsgBlock *b, size_t n) noexcept nogil
cdef void block_commit(MsgBlock *b, size_t n, uint64_t checksum) noexcept nogil
# Writes a record of record_size() bytes to p; returns its checksum (0 in memory, where there is none).
cdef uint64_t block_encode(
    BlockEnv *env, MsgBlock *b, char *p, uint64_t seq, int64_t ts, const char *subject, size_t subject_n,
    const char *hdr, size_t hdr_n, const char *msg, size_t msg_n,
) noexcept nogil
cdef int block_flush(BlockEnv *env, MsgBlock *b) noexcept nogil               # 0 or -errno; env.error is set then
cdef void block_drop_pending(BlockEnv *env, MsgBlock *b) noexcept nogil      # forget what waits; slots are the caller's
cdef void block_seal(BlockEnv *env, MsgBlock *b) noexcept nogil               # it stops being the last; was flushed
# Replaces the records by those in data (n bytes, taken over: malloc'd): written beside, renamed. 0 or -errno.
# `pack`: compress it, if the store compresses and it is not the last one.
# The slots go; block_load makes them again. The two halves of it are for who has no time to hold the lock: the file is
# written and synced beside (block_write, needs no lock; 0 or an errno; compressed if `pack`), and takes the block's
# place (block_adopt).
cdef int block_write(
    const BlockEnv *env, int dirfd, uint32_t index, const void *seal_key, const char *data, size_t n, bint pack,
) noexcept nogil
cdef int block_adopt(BlockEnv *env, MsgBlock *b, size_t n) noexcept nogil
cdef int block_replace(BlockEnv *env, MsgBlock *b, char *data, size_t n, bint pack) noexcept nogil
cdef int block_open_last(BlockEnv *env, MsgBlock *b) noexcept nogil          # to append to a file there is; 0 or -errno
cdef int block_cut(BlockEnv *env, MsgBlock *b, uint64_t offset) noexcept nogil    # its file, before anybody reads it
cdef int block_set_aside(BlockEnv *env, MsgBlock *b) noexcept nogil          # N.blk.bad: nothing of it can be read
# A descriptor of its own to sync: of the key if that is new, else of the file. Once there is one, the caller's sync is
# what the block waits for. -errno: none could be had, and nothing has changed.
cdef int block_sync_fd(BlockEnv *env, MsgBlock *b) noexcept nogil
cdef int block_sync(BlockEnv *env, MsgBlock *b) noexcept nogil                # both, now; 0 or -errno

cdef int env_fail(BlockEnv *env, int err, const char *what, uint32_t index) noexcept nogil    # notes the first; -err
cdef int env_sync_failed(BlockEnv *env, int err, uint32_t index) noexcept nogil               # the same
# Makes a file or a directory durable, with or without the store's lock: 0 or an errno. After one failure all fail.
cdef int env_sync(BlockEnv *env, int fd, bint directory) noexcept nogil
