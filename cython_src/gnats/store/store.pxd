"""The message store of a stream (store.go, filestore.go, memstore.go): blocks of records in files, or in memory.

`lock` is the stream's lock; every method is called with it held, except those that say otherwise. What a StoreMsg
points to stays valid until the calling thread's next quiescent point (core.quiesce): a poller's batch, or what a
registered QsParticipant does between online and offline; or, for others, as long as the lock is held.

Errors are those of StoreError (gnats.store.base). After an error of writing a store is frozen: it stores and removes
nothing any more (STORE_FAILED), reading goes on, and `failure()` of the Python face says what happened.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.store.base cimport StoreBase, StoreMsg
from gnats.store.filter cimport Filter


cdef class MsgStore(StoreBase):
    # --- storing ---
    # ttl: of Nats-TTL, in seconds; 0: none, negative: it never expires. The message's sequence is then last_seq.
    cdef int append(
        self, const char *subject, uint32_t subject_n, const char *hdr, uint32_t hdr_n,
        const char *msg, uint32_t msg_n, int64_t ts, int64_t ttl) noexcept nogil
    # With its sequence, which must be the next one, or 0; discard new is not looked at. For a restore.
    cdef int store_raw(
        self, const char *subject, uint32_t subject_n, const char *hdr, uint32_t hdr_n,
        const char *msg, uint32_t msg_n, uint64_t seq, int64_t ts, int64_t ttl) noexcept nogil
    # n sequences from seq on (0: the next one) without a message
    cdef int skip_msgs(self, uint64_t seq, uint64_t n) noexcept nogil
    # Writes what is appended. 0, or -errno: it is not stored, and the store is frozen.
    cdef int flush(self) noexcept nogil
    # Makes durable what is flushed: 0 or -errno (frozen). Called WITHOUT the lock, by one thread at a time.
    cdef int sync(self) noexcept nogil

    # --- reading ---
    cdef int load(self, uint64_t seq, StoreMsg *out) noexcept nogil
    # f NULL: every subject. *skip (may be NULL): where it was found, else last_seq (next) or first_seq (prev).
    cdef int load_next(self, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip) noexcept nogil
    cdef int load_prev(self, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip) noexcept nogil
    cdef int load_last(self, const char *subject, uint32_t n, StoreMsg *out) noexcept nogil

    # --- removing; *purged: how many ---
    cdef int remove(self, uint64_t seq, bint erase) noexcept nogil
    cdef int purge(self, uint64_t *purged) noexcept nogil
    cdef int purge_ex(
        self, const char *subject, uint32_t n, uint64_t seq, uint64_t keep, uint64_t *purged) noexcept nogil
    cdef int compact(self, uint64_t seq, uint64_t *purged) noexcept nogil      # all before seq
    cdef int truncate(self, uint64_t seq, uint64_t *purged) noexcept nogil     # all behind seq

    # --- expiry ---
    # When something expires next (ns since 1970), INT64_MAX: nothing will. With delete markers the stream asks
    # `expired` for at most n sequences and removes them, or stores markers; otherwise `expire` removes at most n.
    cdef int64_t next_expiry(self) noexcept nogil
    cdef uint32_t expire(self, int64_t now, uint32_t n) noexcept nogil
    cdef uint32_t expired(self, int64_t now, uint64_t *seqs, uint32_t n) noexcept nogil

    # --- questions ---
    # Messages at and behind seq; last_per_subject: only the last one of each subject counts.
    cdef uint64_t num_pending(self, uint64_t seq, const Filter *f, bint last_per_subject) noexcept nogil
    # How many messages the filter takes at and behind seq, the first and the last of them (0, 0, 0: none).
    cdef uint64_t filtered_state(
        self, uint64_t seq, const Filter *f, uint64_t *first, uint64_t *last) noexcept nogil
    # The last sequence of each subject, up to most_seq (0: all), sorted; malloc'd. -1: no memory, -2: more than `most`.
    cdef int64_t multi_last_seqs(
        self, const Filter *f, uint64_t most_seq, int64_t most, uint64_t **seqs) noexcept nogil
    cdef uint64_t seq_from_time(self, int64_t ts) noexcept nogil               # last_seq + 1: none is as new
    cdef uint64_t subject_msgs(self, const char *subject, uint32_t n) noexcept nogil
    cdef size_t num_subjects(self) noexcept nogil

    cdef int check(self, int code) except -1       # StoreFailure for a StoreError
    cdef object found(self, filters, uint64_t start, bint forward)
    cdef uint64_t n_deleted(self) noexcept nogil
    cdef void release(self) noexcept nogil
