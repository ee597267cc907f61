"""The parts of a store (filestore.go, memstore.go): state, blocks, subjects. The other modules
of the store work on this.

Everything needs `lock`, which the caller takes; functions never take it themselves. Errors of writing *freeze* a
store: `env.error` is the errno, nothing is stored or removed any more, and reading goes on.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.includes.pthread cimport pthread_mutex_t
from gnats.store.block cimport BlockEnv, MsgBlock
from gnats.store.record cimport Record
from gnats.store.schedules cimport Schedules
from gnats.store.seqset cimport SeqSet
from gnats.store.stree cimport STree, SimpleState
from gnats.store.wheel cimport Wheel

cdef enum StoreError:
    STORE_OK = 0
    STORE_NOT_FOUND              # no such sequence any more, or no message of the subject
    STORE_DELETED                # it is deleted, between others
    STORE_EOF                    # it is behind the last one
    STORE_MAX_MSGS               # discard new: the limits
    STORE_MAX_BYTES
    STORE_MAX_MSGS_PER_SUBJECT
    STORE_TOO_LARGE              # more than a record may be
    STORE_FAILED                 # frozen: an earlier write failed
    STORE_NO_MEMORY
    STORE_CLOSED
    STORE_SEQ_MISMATCH           # not the next sequence
    STORE_DAMAGED                # stored, and cannot be read
    STORE_NO_SEQ                 # the sequence would be greater than MAX_SEQ
    STORE_AGAIN                  # not found so far: the search has looked at as much as it may at once
    STORE_UNREADABLE             # a block cannot be read now, for want of descriptors or memory: it can be later


cdef struct StoreMsg:
    uint64_t seq
    int64_t ts                   # ns since 1970
    const char *subject
    const char *hdr              # hdr_n bytes, and the payload behind them
    uint32_t subject_n, hdr_n, msg_n


cdef enum:
    LOST_NOTES = 16


cdef struct LostNote:
    uint32_t block
    uint64_t first, last, n      # n messages between two sequences


# A message that a limit has removed for one that is not written yet: it comes back if that cannot be written.
cdef struct Replaced:
    uint64_t seq, offset
    uint64_t end                 # what waited in the last block, `block`, ended there
    uint32_t block


cdef struct StoreLimits:
    int64_t max_msgs, max_bytes, max_msgs_per    # 0 or less: none
    int64_t max_age                              # ns; 0: for ever
    bint discard_new, discard_new_per
    bint allow_ttl                               # TTLs of messages count
    bint delete_markers                          # the stream removes what expires: there may be a marker to store
    bint allow_schedules                         # messages may be schedules


cdef class StoreBase:
    cdef pthread_mutex_t lock
    cdef pthread_mutex_t sync_turn                    # held by the thread that syncs; taken before `lock`
    cdef uint64_t first_seq, last_seq, msgs, bytes    # empty: first_seq == last_seq + 1
    cdef int64_t first_ts, last_ts                    # ns; 0 without a message
    # Messages left the store, with its lock held: one (seq, its subject), or many (seq 0, no subject).
    cdef void (*on_removed)(
        void *ctx, uint64_t seq, const char *subject, uint32_t subject_n, uint64_t msgs, uint64_t bytes) noexcept nogil
    # Messages were found to be lost, with its lock held: there are notes.
    cdef void (*on_lost)(void *ctx) noexcept nogil
    cdef void *ctx

    cdef StoreLimits limits
    cdef BlockEnv env
    cdef bint closed
    cdef uint64_t most_gaps           # sequences between the records of a block: more are damage
    cdef uint64_t age_seq             # messages before it do not expire by age
    cdef Wheel ttls
    cdef bint tracks_ttls             # the wheel knows of all messages with a TTL
    cdef Schedules schedules
    cdef bint tracks_schedules        # it knows of all messages that are some
    cdef bint index_written           # there may be an index.db
    cdef uint64_t indexed_seq         # the last sequence that index.db knew at the start; 0: of none
    cdef uint64_t invalidations
    cdef uint64_t dirty               # changes since the state was written
    cdef MsgBlock **blks              # by index and by sequence
    cdef size_t n_blks, blk_room
    cdef MsgBlock *last               # the one appended to
    cdef MsgBlock *near               # the one read last
    cdef STree subjects               # of SimpleState
    cdef SeqSet lost                  # what damage has cost
    cdef uint64_t lost_bytes
    cdef Replaced *replaced           # since the last block was written; older ones among them mean nothing
    cdef size_t n_replaced, replaced_room
    cdef LostNote notes[LOST_NOTES]   # what of it nobody was told yet, the last one of all that is left
    cdef size_t n_notes
    cdef bint rescan                  # pages could not be read: the next start looks at all records again
    cdef bint subjects_stale          # messages were lost, and it is not known of which subjects
    cdef bint refused                 # the block that was to be loaded last is one of STORE_UNREADABLE
    cdef object sealer                # keeps env.sealer
    cdef bytes name_bytes
    cdef str directory


# What a message counts in `bytes`: as nats-server does, differently in memory and in files.
cdef inline uint64_t msg_size(StoreBase s, const Record *r) noexcept nogil:
    return r.subject_n + r.hdr_n + r.msg_n + 16 if s.env.in_memory else r.size


cdef inline void msg_of(const Record *r, StoreMsg *out) noexcept nogil:
    out.seq = r.seq
    out.ts = r.ts
    out.subject = r.subject
    out.hdr = r.hdr
    out.subject_n = r.subject_n
    out.hdr_n = r.hdr_n
    out.msg_n = r.msg_n


# The position of the first block whose last_seq is at or after seq; n_blks when there is none.
cdef size_t blk_at(StoreBase s, uint64_t seq) noexcept nogil
cdef MsgBlock *blk_by_index(StoreBase s, uint32_t index) noexcept nogil
cdef size_t blk_position(StoreBase s, const MsgBlock *b) noexcept nogil

cdef inline MsgBlock *blk_select(StoreBase s, uint64_t seq) noexcept nogil:
    cdef MsgBlock *b = s.near
    cdef size_t i
    if b != NULL and b.first_seq <= seq <= b.last_seq:
        return b
    i = blk_at(s, seq)
    if i == s.n_blks:
        return NULL
    s.near = s.blks[i]
    return s.blks[i]

cdef int blk_add(StoreBase s, MsgBlock *b) noexcept nogil                    # 0, -1: no memory
cdef void blk_forget(StoreBase s, MsgBlock *b) noexcept nogil                # out of the list, and freed
cdef int blk_drop(StoreBase s, MsgBlock *b) noexcept nogil                   # its files, too; STORE_OK, STORE_FAILED

# A new last block; the one before is flushed and sealed. STORE_OK or a StoreError.
cdef int roll(StoreBase s) noexcept nogil
# Room for a record of n bytes in the last block, rolling as needed; then block_commit(s.last). NULL: *error.
cdef char *reserve(StoreBase s, size_t n, int *error) noexcept nogil
cdef int write_tombstone(StoreBase s, uint64_t seq, int64_t ts) noexcept nogil

cdef void next_first(MsgBlock *b, uint64_t after) noexcept nogil             # the block's, behind a sequence
cdef void select_next_first(StoreBase s) noexcept nogil                      # the store's

# Subjects. A state's first and last are exact, or bounds (the *_stale flags) until somebody asks.
cdef void subject_stored(StoreBase s, SimpleState *st, uint64_t seq, uint32_t block) noexcept nogil
# The subject's next message after one that is, or was, in a slot: True and its sequence, if the links know it. Else
# *seq is one that no message of the subject is before.
cdef bint follow(
    StoreBase s, MsgBlock *b, uint32_t k, const char *subject, uint32_t n, uint64_t *seq) noexcept nogil
# Sequences will be given out again: links to them must go.
cdef void forget_links(StoreBase s) noexcept nogil
cdef uint64_t subject_removed(StoreBase s, const Record *r) noexcept nogil   # how many are left
# 0: none, or `refused`
cdef uint64_t first_of(StoreBase s, SimpleState *st, const char *subject, uint32_t n) noexcept nogil
cdef uint64_t last_of(StoreBase s, SimpleState *st, const char *subject, uint32_t n) noexcept nogil
# False: it cannot be read at all, or not now (`refused`): then nobody may go on as if it were empty.
cdef bint blk_load(StoreBase s, MsgBlock *b) noexcept nogil
# At most n sequences from first to last, without those in `but` (may be NULL), are lost to damage of a block.
cdef void note_lost(StoreBase s, uint32_t block, SeqSet *but, uint64_t first, uint64_t last, uint64_t n) noexcept nogil
# The message of a slot cannot be read any more: it is lost.
cdef void lose_slot(StoreBase s, MsgBlock *b, uint32_t k) noexcept nogil
# The subjects from all messages, after damage.
cdef bint rebuild_subjects(StoreBase s) noexcept nogil
# A limit has removed the message of a slot that was at an offset.
cdef void note_replaced(StoreBase s, uint64_t seq, uint64_t offset) noexcept nogil
cdef int flush_last(StoreBase s) noexcept nogil                              # 0 or -errno; frozen then
# The same, and with sync_always all of it is durable: before something goes from the disk that it replaces.
cdef int sync_written(StoreBase s) noexcept nogil
