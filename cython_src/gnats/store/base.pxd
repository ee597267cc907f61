"""The state that all modules of a store share: its blocks, its subjects, its counts (filestore.go, memstore.go).

The caller of any function here holds `lock`; no function takes it. A failed write *freezes* the store: `env.error` is
the errno. The store then stores and removes nothing more; reading goes on.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.includes.pthread cimport pthread_mutex_t
from gnats.includes.times cimport time_after
from gnats.includes.units cimport SECOND
from gnats.store.block cimport BlockEnv, MsgBlock
from gnats.store.format.record cimport Record
from gnats.store.index.schedules cimport Schedules
from gnats.store.index.seqset cimport SeqSet
from gnats.store.index.stree cimport STree, SimpleState
from gnats.store.index.wheel cimport Wheel

cdef enum StoreError:
    STORE_OK = 0
    STORE_NOT_FOUND              # the sequence is before first_seq, or the subject has no message
    STORE_DELETED                # the sequence is between the first and the last message and has none
    STORE_EOF                    # the sequence is after last_seq, or a search found nothing
    STORE_MAX_MSGS               # discard new refused the message: one of three limits
    STORE_MAX_BYTES
    STORE_MAX_MSGS_PER_SUBJECT
    STORE_TOO_LARGE              # the message does not fit into a record
    STORE_FAILED                 # the store is frozen: a write failed
    STORE_NO_MEMORY
    STORE_CLOSED
    STORE_SEQ_MISMATCH           # the sequence given is not the next one
    STORE_DAMAGED                # the message was stored and cannot be read
    STORE_NO_SEQ                 # the sequence would be greater than MAX_SEQ
    STORE_AGAIN                  # call again: the function has looked at as many messages as one call may
    STORE_UNREADABLE             # a block cannot be read now (too few descriptors, no memory); try again later


cdef struct StoreMsg:
    uint64_t seq
    int64_t ts                   # ns since 1970
    const char *subject
    const char *hdr              # hdr_n bytes, directly followed by msg_n bytes of payload
    uint32_t subject_n, hdr_n, msg_n


cdef enum:
    LOST_NOTES = 16
    MEMORY_OVERHEAD = 16         # bytes that a message counts in memory, besides its own: its sequence and its time


# Damage to report: n messages of a block are lost, with sequences from first to last.
cdef struct LostNote:
    uint32_t block
    uint64_t first, last, n


# A message that a limit removed while a newer message waited to be written. If that write fails, it is put back.
cdef struct Replaced:
    uint64_t seq, offset         # of the removed message; the offset is that of its record in its block
    uint64_t end                 # `rbytes` of the last block at that time, waiting records included
    uint32_t block               # index of the last block at that time


cdef struct StoreLimits:
    int64_t max_msgs, max_bytes, max_msgs_per    # 0 or less: no limit
    int64_t max_age                              # ns; 0: no limit
    bint discard_new, discard_new_per
    bint allow_ttl                               # messages expire by their Nats-TTL
    bint delete_markers                          # the stream removes expired messages: it may have to store a marker
    bint allow_schedules                         # messages may be schedules


cdef class StoreBase:
    cdef pthread_mutex_t lock
    cdef pthread_mutex_t sync_mutex                   # held by the thread that syncs; taken before `lock`
    cdef uint64_t first_seq, last_seq, msgs, bytes    # without messages first_seq == last_seq + 1
    cdef int64_t first_ts, last_ts                    # ns since 1970; 0: unknown
    # Called with the lock held after messages were removed or lost. For one message: its seq and subject. For several,
    # or for one that cannot be read: seq 0 and subject NULL. `msgs` and `bytes` are the totals. NULL: not called.
    cdef void (*on_removed)(
        void *ctx, uint64_t seq, const char *subject, uint32_t subject_n, uint64_t msgs, uint64_t bytes) noexcept nogil
    # Called with the lock held when `notes` gets its first entry; newly_lost() takes the notes. NULL: not called.
    cdef void (*on_lost)(void *ctx) noexcept nogil
    cdef void *ctx

    cdef StoreLimits limits
    cdef BlockEnv env
    cdef bint closed
    cdef uint64_t most_gaps           # most sequences without a record in one block; recovery takes more for damage
    # Max_age removes no message before this sequence: such messages have the TTL "never", or are in the wheel because
    # the stream could not remove them.
    cdef uint64_t age_seq
    cdef Wheel ttls                   # when messages with a TTL expire
    cdef uint64_t ttls_from           # `ttls` may lack messages from here on, for want of memory; 0: none
    cdef Schedules schedules
    cdef uint64_t schedules_from      # the same for `schedules`
    cdef bint tracks_schedules        # `schedules` has been filled
    cdef bint index_written           # there may be an index.db
    cdef uint64_t indexed_seq         # the last sequence in the index.db read at the start; 0: there was none
    cdef uint64_t invalidations       # calls of invalidate(); a thread that writes the state compares it
    cdef uint64_t dirty               # changes since the state was written
    cdef MsgBlock **blks              # sorted by index, and so by sequence
    cdef size_t n_blks, blk_room
    cdef MsgBlock *last               # the block that new records go to
    cdef MsgBlock *near               # the block read last, or NULL
    cdef STree subjects               # of SimpleState
    cdef SeqSet lost                  # sequences of messages lost to damage
    cdef uint64_t lost_bytes
    cdef Replaced *replaced           # see Replaced; entries from before the last flush are ignored
    cdef size_t n_replaced, replaced_room
    cdef LostNote notes[LOST_NOTES]   # losses that newly_lost() has not returned yet; the last note adds up all others
    cdef size_t n_notes
    cdef bint rescan                  # pages could not be read: write an index.db that makes the next start scan
    cdef bint subjects_stale          # messages of unknown subjects were lost: rebuild_subjects() is due
    cdef bint refused                 # the last blk_load() failed for want of descriptors or memory (STORE_UNREADABLE)
    cdef object sealer                # owns env.sealer
    cdef bytes name_bytes
    cdef str directory


# Return when to try again, after a failure at `now` (ns) for want of memory or descriptors.
cdef inline int64_t retry_after(int64_t now) noexcept nogil:
    return time_after(now, 2 * SECOND)


# Return the size that a message counts in the `bytes` of a store in memory.
cdef inline uint64_t memory_size(uint64_t subject_n, uint64_t hdr_n, uint64_t msg_n) noexcept nogil:
    return subject_n + hdr_n + msg_n + MEMORY_OVERHEAD


# Return the size that a message counts in `bytes`. As in nats-server, it differs between memory and files.
cdef inline uint64_t msg_size(StoreBase s, const Record *r) noexcept nogil:
    return memory_size(r.subject_n, r.hdr_n, r.msg_n) if s.env.in_memory else r.size


cdef inline void msg_of(const Record *r, StoreMsg *out) noexcept nogil:
    out.seq = r.seq
    out.ts = r.ts
    out.subject = r.subject
    out.hdr = r.hdr
    out.subject_n = r.subject_n
    out.hdr_n = r.hdr_n
    out.msg_n = r.msg_n


# Return the position in `blks` of the first block whose last_seq is at or after seq; n_blks when there is none.
cdef size_t blk_at(StoreBase s, uint64_t seq) noexcept nogil
cdef MsgBlock *blk_by_index(StoreBase s, uint32_t index) noexcept nogil      # NULL: there is none
cdef size_t blk_position(StoreBase s, const MsgBlock *b) noexcept nogil

# Return the block of a sequence, or the first one after it; NULL: all blocks are before it.
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

# Add a block at the end of `blks`. 0, -1: no memory.
cdef int blk_add(StoreBase s, MsgBlock *b) noexcept nogil
# Take a block out of `blks` and free it. Its files stay.
cdef void blk_forget(StoreBase s, MsgBlock *b) noexcept nogil
# Remove a block with its files, after sync_written(). STORE_OK or STORE_FAILED.
cdef int blk_drop(StoreBase s, MsgBlock *b) noexcept nogil

# Make a new last block; flush and seal the one before. STORE_OK or a StoreError.
cdef int roll(StoreBase s) noexcept nogil
# Reserve n bytes for records at the end of the last block, and roll when it is full; then block_commit(s.last).
# NULL: *error says why.
cdef char *reserve(StoreBase s, size_t n, int *error) noexcept nogil
# Add a tombstone to the last block; does nothing in memory. STORE_OK or a StoreError.
cdef int write_tombstone(StoreBase s, uint64_t seq, int64_t ts) noexcept nogil

# Set a block's first_seq to its first message after a sequence.
cdef void next_first(MsgBlock *b, uint64_t after) noexcept nogil
# Set the store's first_seq to that of its first block with messages.
cdef void select_next_first(StoreBase s) noexcept nogil

# Count a message that was stored, and link the subject's previous one to it.
#
# A SimpleState's `first` and `last` are exact, or bounds while first_needs_update or last_needs_update is set:
# `first` is then at or before the first message, `last` at or after the last. first_of() and last_of() make them exact.
cdef void subject_stored(StoreBase s, SimpleState *st, uint64_t seq, uint32_t block) noexcept nogil
# Follow the links from slot k to the subject's next message. True: *seq is its sequence. False: the links do not reach
# that message; no message of the subject is between the slot's and *seq.
cdef bint follow(
    StoreBase s, MsgBlock *b, uint32_t k, const char *subject, uint32_t n, uint64_t *seq) noexcept nogil
# Clear all links. Needed when the last sequences were taken back: new messages get them, of other subjects.
cdef void forget_links(StoreBase s) noexcept nogil
# Take a removed message out of the counts. Return the number of messages that its subject has left.
cdef uint64_t subject_removed(StoreBase s, const Record *r) noexcept nogil
# Return the first or the last sequence of a subject. 0: it has none, or a block cannot be read now (`refused`).
cdef uint64_t first_of(StoreBase s, SimpleState *st, const char *subject, uint32_t n) noexcept nogil
cdef uint64_t last_of(StoreBase s, SimpleState *st, const char *subject, uint32_t n) noexcept nogil
# Load a block and check that all its messages are there. False: the block cannot be read. With `refused` it may be
# readable later: the caller must not go on as if the block were empty.
cdef bint blk_load(StoreBase s, MsgBlock *b) noexcept nogil
# Note that damage of a block cost at most n messages: sequences from first to last, except those in `but` (or NULL).
cdef void note_lost(StoreBase s, uint32_t block, SeqSet *but, uint64_t first, uint64_t last, uint64_t n) noexcept nogil
# Count the message of slot k as lost: it cannot be read any more.
cdef void lose_slot(StoreBase s, MsgBlock *b, uint32_t k) noexcept nogil
# Build `subjects` anew from all messages, after damage. False: no memory.
cdef bint rebuild_subjects(StoreBase s) noexcept nogil
# Note that a limit removed a message whose record is at an offset of its block; see Replaced.
cdef void note_replaced(StoreBase s, uint64_t seq, uint64_t offset) noexcept nogil
# Write the records that wait in the last block. 0, or -errno: they are dropped, and the store is frozen.
cdef int flush_last(StoreBase s) noexcept nogil
# flush_last(), and with sync_always syncs all that was written. Call it before anything is removed from the disk that
# newer records replace. 0 or -errno.
cdef int sync_written(StoreBase s) noexcept nogil
