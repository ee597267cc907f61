"""The message store of one stream: blocks of records in files, or in memory (store.go, filestore.go, memstore.go).

`lock` is the stream's lock. Call every method with it held, except where its comment says otherwise. The pointers in a
StoreMsg stay valid until the calling thread's next quiescent point (core.runtime.quiesce): for a poller the end of its
batch, for another registered QsParticipant its next qs_offline. A thread that is not registered may use them only while
it holds the lock.

Methods that return int return a StoreError (gnats.store.base), except `flush` and `sync`. A failed write freezes the
store: it stores and removes nothing any more (STORE_FAILED), and reading goes on. `failure()` gives the reason.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.store.base cimport StoreBase, StoreMsg
from gnats.store.index.filter cimport Filter


cdef class MsgStore(StoreBase):
    # --- storing ---
    # Store a message of a restore. `seq` must be the next sequence; 0: the next one. Ignores discard new.
    # `ts` in ns since 1970. `ttl` is the Nats-TTL in seconds; 0: none, negative: it never expires.
    cdef int store_raw(
        self, const char *subject, uint32_t subject_n, const char *hdr, uint32_t hdr_n,
        const char *msg, uint32_t msg_n, uint64_t seq, int64_t ts, int64_t ttl) noexcept nogil
    # Leave n sequences without a message. `seq` is the first of them and must be the next sequence; 0: the next one.
    cdef int skip_msgs(self, uint64_t seq, uint64_t n) noexcept nogil
    # Write the records that wait in memory. 0 or -errno: then those messages are not stored, and the store is frozen.
    cdef int flush(self) noexcept nogil
    # Sync all files that were written. 0 or -errno (frozen). Call WITHOUT the lock. One thread syncs at a time.
    cdef int sync(self) noexcept nogil

    # --- reading ---
    cdef int load(self, uint64_t seq, StoreMsg *out) noexcept nogil
    # Load the first message at or after (load_next), or the last at or before (load_prev), `start` that `f` matches.
    # f NULL: every subject. STORE_EOF: there is none. *skip (may be NULL) becomes the sequence of the message; without
    # one last_seq (load_next) or first_seq (load_prev); after STORE_UNREADABLE see gnats.store.reading.
    cdef int load_next(self, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip) noexcept nogil
    cdef int load_prev(self, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip) noexcept nogil
    # Load the last message of a subject, which may have wildcards.
    cdef int load_last(self, const char *subject, uint32_t n, StoreMsg *out) noexcept nogil

    # --- removing; *purged becomes the number of messages removed ---
    cdef int remove(self, uint64_t seq, bint erase) noexcept nogil    # erase: overwrite the record, too
    cdef int purge(self, uint64_t *purged) noexcept nogil
    # Remove messages of a subject (wildcards allowed; n 0: all), those before seq (0: any), all but the last `keep`.
    cdef int purge_ex(
        self, const char *subject, uint32_t n, uint64_t seq, uint64_t keep, uint64_t *purged) noexcept nogil
    cdef int compact(self, uint64_t seq, uint64_t *purged) noexcept nogil      # remove all before seq
    cdef int truncate(self, uint64_t seq, uint64_t *purged) noexcept nogil     # remove all after seq

    # --- expiry ---
    # Return when a message expires next (ns since 1970, possibly early); INT64_MAX: none will.
    cdef int64_t next_expiry(self) noexcept nogil
    # Remove expired messages, 64 at a time until at least n are removed or none is left. Return the number removed.
    cdef uint32_t expire(self, int64_t now, uint32_t n) noexcept nogil
    # Fill seqs with at most n (n >= 32) expired sequences. Return their number. For streams with delete markers: the
    # stream removes each message, or stores a marker. A message that is still there two seconds later is returned
    # again.
    cdef uint32_t expired(self, int64_t now, uint64_t *seqs, uint32_t n) noexcept nogil
    # Return whether the first message of a subject has expired.
    cdef bint first_expired(self, const char *subject, uint32_t n, int64_t now) noexcept nogil

    # --- questions ---
    # Count the messages at or after seq that `f` matches; last_per_subject: only the last one of each subject.
    cdef uint64_t num_pending(self, uint64_t seq, const Filter *f, bint last_per_subject) noexcept nogil
    # Count the same, and get the sequences of the first and the last of these messages (all 0: there is none).
    cdef uint64_t filtered_state(
        self, uint64_t seq, const Filter *f, uint64_t *first, uint64_t *last) noexcept nogil
    # Get the last sequence of each subject that `f` matches, up to most_seq (0: last_seq), sorted; free *seqs. Return
    # their number; -1: no memory, or a block cannot be read now; -2: more than `most` (0: no limit).
    cdef int64_t multi_last_seqs(
        self, const Filter *f, uint64_t most_seq, int64_t most, uint64_t **seqs) noexcept nogil
    # Return the first sequence stored at or after ts (ns since 1970); last_seq + 1: there is none.
    cdef uint64_t seq_from_time(self, int64_t ts) noexcept nogil
    cdef uint64_t subject_msgs(self, const char *subject, uint32_t n) noexcept nogil
    cdef size_t num_subjects(self) noexcept nogil

    cdef int check(self, int code) except -1       # raise StoreFailure or MemoryError for a StoreError
    cdef object found(self, filters, uint64_t start, bint forward)    # get_next and get_prev; takes the lock
    cdef uint64_t n_deleted(self) noexcept nogil   # sequences between the first and the last message without one
    cdef void release(self) noexcept nogil         # free the blocks of a closed store; takes the lock
