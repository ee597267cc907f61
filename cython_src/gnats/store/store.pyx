"""The message store of a stream; see store.pxd. Its methods call the modules that implement them."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset
from posix.unistd cimport close

import os
import shutil
from typing import NamedTuple

from gnats.core.messages.headers cimport named_header
from gnats.core.runtime.clock cimport realtime_ns
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.store cimport expiry, purging, reading, recovery, removing, scheduling, writing, queries, maintenance
from gnats.store.base cimport (
    STORE_DELETED,
    STORE_EOF,
    STORE_FAILED,
    STORE_NO_MEMORY,
    STORE_NO_SEQ,
    STORE_NOT_FOUND,
    STORE_OK,
    STORE_TOO_LARGE,
    STORE_UNREADABLE,
    StoreLimits,
    StoreMsg,
    blk_forget,
    first_of,
    flush_last,
    last_of,
    rebuild_subjects,
    retry_after,
    roll,
    sync_written,
)
from gnats.store.block cimport MsgBlock, Sealer
from gnats.store.format.record cimport MAX_SEQ
from gnats.store.index.filter cimport Filter, filter_free, filter_make
from gnats.store.index.schedules cimport schedules_clear
from gnats.store.index.seqset cimport seqset_next_range
from gnats.store.index.stree cimport STreeIter, SimpleState, stree_clear, stree_end, stree_find, stree_next
from gnats.store.queries cimport iter_filter
from gnats.store.subjects cimport Totals, collect_totals, free_totals, sort_totals
from gnats.store.syncing cimport sync_blocks


class StoreFailure(OSError):
    """Raised when a store refuses an operation or fails; `code` is a StoreError of gnats.store.base."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


MESSAGES = (
    "", "message not found", "message deleted", "no message so late", "maximum messages exceeded",
    "maximum bytes exceeded", "maximum messages per subject exceeded", "message too large", "the store is frozen",
    "out of memory", "the store is closed", "not the next sequence", "the message cannot be read",
    "there are no more sequences", "the search goes on", "a block cannot be read now",
)


cdef struct Text:
    const char *p
    uint32_t n


cdef Text text_of(bytes b) except *:
    cdef Text text
    if b is None:
        raise TypeError("bytes are needed, not None")
    text.p = PyBytes_AS_STRING(b)
    text.n = <uint32_t> PyBytes_GET_SIZE(b)
    return text


class StreamState(NamedTuple):
    """The counts of a store. Times are in ns since 1970, 0 without a message; see store.pyi."""

    msgs: int
    bytes: int
    first_seq: int
    first_ts: int
    last_seq: int
    last_ts: int
    num_subjects: int
    num_deleted: int
    lost_msgs: int
    lost_bytes: int
    damaged: int


cdef class MsgStore(StoreBase):
    """A store. The Python methods take the lock themselves; the C methods (store.pxd) need it."""

    # --- storing ---

    cdef int store_raw(
        self, const char *subject, uint32_t subject_n, const char *hdr, uint32_t hdr_n,
        const char *msg, uint32_t msg_n, uint64_t seq, int64_t ts, int64_t ttl,
    ) noexcept nogil:
        return writing.store_msg(
            self, subject, subject_n, hdr, hdr_n, msg, msg_n, seq, ts, ttl, False,
            hdr_n > 0 and named_header(hdr, hdr_n, b"Nats-Batch-Id").n > 0)

    cdef int skip_msgs(self, uint64_t seq, uint64_t n) noexcept nogil:
        return writing.skip_msgs(self, seq, n, realtime_ns())

    cdef int flush(self) noexcept nogil:
        return flush_last(self)

    cdef int sync(self) noexcept nogil:
        return sync_blocks(self)

    # --- reading ---

    cdef int load(self, uint64_t seq, StoreMsg *out) noexcept nogil:
        return reading.load(self, seq, out)

    cdef int load_next(self, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip) noexcept nogil:
        return reading.load_next(self, f, start, out, skip)

    cdef int load_prev(self, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip) noexcept nogil:
        return reading.load_prev(self, f, start, out, skip)

    cdef int load_last(self, const char *subject, uint32_t n, StoreMsg *out) noexcept nogil:
        return reading.load_last(self, subject, n, out)

    # --- removing ---

    cdef int remove(self, uint64_t seq, bint erase) noexcept nogil:
        return removing.remove_msg(self, seq, erase, False)

    cdef int purge(self, uint64_t *purged) noexcept nogil:
        return removing.purge(self, 0, purged)

    cdef int purge_ex(
        self, const char *subject, uint32_t n, uint64_t seq, uint64_t keep, uint64_t *purged,
    ) noexcept nogil:
        return removing.purge_ex(self, subject, n, seq, keep, purged)

    cdef int compact(self, uint64_t seq, uint64_t *purged) noexcept nogil:
        return removing.compact(self, seq, purged)

    cdef int truncate(self, uint64_t seq, uint64_t *purged) noexcept nogil:
        return purging.truncate(self, seq, purged)

    # --- expiry ---

    cdef int64_t next_expiry(self) noexcept nogil:
        return expiry.next_expiry(self)

    cdef uint32_t expire(self, int64_t now, uint32_t n) noexcept nogil:
        cdef uint64_t seqs[64]
        cdef uint32_t gone = 0, some, i
        cdef int code
        while gone < n:
            some = expiry.expired(self, now, seqs, 64)
            for i in range(some):
                code = removing.remove_msg(self, seqs[i], False, True)
                gone += code == STORE_OK
                if code == STORE_FAILED or code == STORE_NO_MEMORY:
                    expiry.expire_again(self, seqs + i, some - i, retry_after(now))
                    return gone
                if code == STORE_UNREADABLE:
                    expiry.expire_again(self, seqs + i, 1, retry_after(now))
            if some == 0:
                break
        return gone

    cdef uint32_t expired(self, int64_t now, uint64_t *seqs, uint32_t n) noexcept nogil:
        cdef uint32_t some = expiry.expired(self, now, seqs, n)
        # The stream removes these messages, which may fail: expire them once more a little later.
        expiry.expire_again(self, seqs, some, retry_after(now))
        return some

    cdef bint first_expired(self, const char *subject, uint32_t n, int64_t now) noexcept nogil:
        return expiry.first_expired(self, subject, n, now)

    # --- questions ---

    cdef uint64_t num_pending(self, uint64_t seq, const Filter *f, bint last_per_subject) noexcept nogil:
        return queries.num_pending(self, seq, f, last_per_subject)

    cdef uint64_t filtered_state(
        self, uint64_t seq, const Filter *f, uint64_t *first, uint64_t *last,
    ) noexcept nogil:
        return queries.filtered_state(self, seq, f, first, last)

    cdef int64_t multi_last_seqs(
        self, const Filter *f, uint64_t most_seq, int64_t most, uint64_t **seqs,
    ) noexcept nogil:
        return queries.multi_last_seqs(self, f, most_seq, most, seqs)

    cdef uint64_t seq_from_time(self, int64_t ts) noexcept nogil:
        return queries.seq_from_time(self, ts)

    cdef uint64_t subject_msgs(self, const char *subject, uint32_t n) noexcept nogil:
        cdef SimpleState *st = <SimpleState *> stree_find(&self.subjects, subject, n)
        return st.msgs if st != NULL else 0

    cdef size_t num_subjects(self) noexcept nogil:
        return self.subjects.size

    # --- for Python; each method takes the lock ---

    cdef int check(self, int code) except -1:
        if code == STORE_OK:
            return 0
        if code == STORE_NO_MEMORY:
            raise MemoryError
        raise StoreFailure(code, MESSAGES[code] + (f": {self.failure()}" if code == STORE_FAILED else ""))

    def failure(self) -> str:
        """Return why the store is frozen; empty when it is not."""
        if self.env.error == 0:
            return ""
        return f"{self.env.what.decode(errors='replace')}: {os.strerror(self.env.error)}"

    def store_msg(
        self, subject: bytes, msg: bytes = b"", hdr: bytes = b"", *, seq: int | None = None, ts: int | None = None,
        ttl: int = 0, flush: bool = True,
    ) -> int:
        """Store a message and return its sequence. Without `flush` it waits in memory for flush_pending().

        ts is in ns since 1970 (None: now), ttl in seconds. With `seq`, which must be the next sequence, discard new is
        ignored. Raises StoreFailure: over a limit, too large, frozen.
        """
        cdef Text s = text_of(subject), h = text_of(hdr), m = text_of(msg)
        cdef int64_t when = realtime_ns() if ts is None else ts, lives = ttl
        cdef uint64_t asked = 0 if seq is None else seq, got
        cdef bint raw = seq is not None, at_once = flush
        cdef int code
        with nogil:
            pthread_mutex_lock(&self.lock)
            code = writing.store_msg(
                self, s.p, s.n, h.p, h.n, m.p, m.n, asked, when, lives, not raw, False)
            got = self.last_seq
            if at_once:
                code = flushed(self, code)
            pthread_mutex_unlock(&self.lock)
        self.check(code)
        return got

    def skip(self, seq: int = 0, n: int = 1) -> None:
        """Leave n sequences without a message; `seq` must be the next sequence, or 0. Raises StoreFailure."""
        cdef uint64_t first = seq, many = n
        cdef int code
        with nogil:
            pthread_mutex_lock(&self.lock)
            code = flushed(self, self.skip_msgs(first, many))
            pthread_mutex_unlock(&self.lock)
        self.check(code)

    def flush_pending(self) -> None:
        """Write the messages that wait in memory. Raises StoreFailure; the store is frozen then."""
        cdef int rc
        with nogil:
            pthread_mutex_lock(&self.lock)
            rc = flush_last(self)
            pthread_mutex_unlock(&self.lock)
        if rc != 0:
            self.check(STORE_FAILED)

    def sync_flushed(self) -> None:
        """Sync all files that were written. Raises StoreFailure; the store is frozen then."""
        cdef int rc
        with nogil:
            rc = self.sync()
        if rc != 0:
            self.check(STORE_FAILED)

    def get(self, seq: int) -> tuple[int, int, bytes, bytes, bytes]:
        """Return (sequence, time in ns, subject, headers, payload). Raises StoreFailure when it cannot be loaded."""
        cdef StoreMsg msg
        cdef uint64_t asked = seq
        pthread_mutex_lock(&self.lock)
        try:
            self.check(self.load(asked, &msg))
            return as_tuple(&msg)
        finally:
            pthread_mutex_unlock(&self.lock)

    def get_next(self, filters=(), start: int = 0) -> tuple[int, int, bytes, bytes, bytes] | None:
        """Return the first message at or after `start` that one of the filters matches, or None."""
        return self.found(filters, start, True)

    def get_prev(self, filters=(), start: int = 2**64 - 1) -> tuple[int, int, bytes, bytes, bytes] | None:
        """Return the last message at or before `start` that one of the filters matches, or None."""
        return self.found(filters, start, False)

    cdef object found(self, filters, uint64_t start, bint forward):
        cdef StoreMsg msg
        cdef Filter *f = filter_make(filters)
        cdef int code
        pthread_mutex_lock(&self.lock)
        try:
            if forward:
                code = self.load_next(f, start, &msg, NULL)
            else:
                code = self.load_prev(f, start, &msg, NULL)
            if code == STORE_EOF:
                return None
            self.check(code)
            return as_tuple(&msg)
        finally:
            pthread_mutex_unlock(&self.lock)
            filter_free(f)

    def get_last(self, subject: bytes) -> tuple[int, int, bytes, bytes, bytes] | None:
        """Return the last message of a subject, which may have wildcards, or None."""
        cdef StoreMsg msg
        cdef Text s = text_of(subject)
        cdef int code
        pthread_mutex_lock(&self.lock)
        try:
            code = self.load_last(s.p, s.n, &msg)
            if code == STORE_NOT_FOUND:
                return None
            self.check(code)
            return as_tuple(&msg)
        finally:
            pthread_mutex_unlock(&self.lock)

    def remove_msg(self, seq: int, erase: bool = False) -> bool:
        """Remove a message; with `erase` overwrite its record. False: there was none. Raises StoreFailure."""
        cdef uint64_t asked = seq
        cdef bint over = erase
        cdef int code
        with nogil:
            pthread_mutex_lock(&self.lock)
            code = flushed(self, self.remove(asked, over))
            pthread_mutex_unlock(&self.lock)
        if code == STORE_NOT_FOUND or code == STORE_EOF or code == STORE_DELETED:
            return False
        self.check(code)
        return True

    def purge_msgs(self, subject: bytes = b"", seq: int = 0, keep: int = 0) -> int:
        """Remove the messages of a subject (wildcards allowed; empty: all) and return their number.

        With `seq` only those before it, with `keep` all but the last `keep`. Raises StoreFailure.
        """
        cdef Text s = text_of(subject)
        cdef uint64_t before = seq, rest = keep, purged = 0
        cdef int code
        with nogil:
            pthread_mutex_lock(&self.lock)
            code = flushed(self, self.purge_ex(s.p, s.n, before, rest, &purged))
            pthread_mutex_unlock(&self.lock)
            purging.remove_purged(self.env.storefd)
        self.check(code)
        return purged

    def compact_to(self, seq: int) -> int:
        """Remove all messages before a sequence and return their number. Raises StoreFailure."""
        cdef uint64_t before = seq, purged = 0
        cdef int code
        with nogil:
            pthread_mutex_lock(&self.lock)
            code = flushed(self, self.compact(before, &purged))
            pthread_mutex_unlock(&self.lock)
            purging.remove_purged(self.env.storefd)
        self.check(code)
        return purged

    def truncate_to(self, seq: int) -> int:
        """Make seq the last sequence: remove all messages after it and return their number. Raises StoreFailure."""
        cdef uint64_t last = seq, purged = 0
        cdef int code
        with nogil:
            pthread_mutex_lock(&self.lock)
            code = self.truncate(last, &purged)
            pthread_mutex_unlock(&self.lock)
            purging.remove_purged(self.env.storefd)
        self.check(code)
        return purged

    def expire_msgs(self, now: int | None = None) -> int:
        """Remove the messages that have expired at `now` (ns since 1970; None: the clock's) and return their number.

        Raises StoreFailure when that cannot be written.
        """
        cdef int64_t when = realtime_ns() if now is None else now
        cdef uint32_t gone
        cdef int code
        with nogil:
            pthread_mutex_lock(&self.lock)
            gone = self.expire(when, 0xffffffff)
            code = flushed(self, STORE_OK)
            pthread_mutex_unlock(&self.lock)
        self.check(code)
        return gone

    def schedules_due(self, now: int) -> list[int]:
        """Return the sequences of the schedules that are due at `now` (ns since 1970). They stay due."""
        cdef int64_t when = now
        cdef uint32_t i
        pthread_mutex_lock(&self.lock)
        try:
            scheduling.find_missing(self)
            return sorted(
                self.schedules.heap[i].seq for i in range(1, self.schedules.waiting + 1)
                if self.schedules.heap[i].when <= when)
        finally:
            pthread_mutex_unlock(&self.lock)

    def pending(self, seq: int = 0, filters=(), last_per_subject: bool = False) -> int:
        """Count the messages at or after `seq` that the filters match.

        With last_per_subject count only the last message of each subject.
        """
        cdef Filter *f = filter_make(filters)
        cdef uint64_t start = seq, n
        cdef bint lasts = last_per_subject
        with nogil:
            pthread_mutex_lock(&self.lock)
            n = self.num_pending(start, f, lasts)
            pthread_mutex_unlock(&self.lock)
            filter_free(f)
        return n

    def last_seqs(self, filters=(), up_to: int = 0, most: int = 0) -> list[int]:
        """Return the last sequence of each subject that the filters match, up to `up_to` (0: all), sorted.

        Raises StoreFailure when there are more than `most` (0: no limit), MemoryError also when a block cannot be
        read now.
        """
        cdef Filter *f = filter_make(filters)
        cdef uint64_t last = up_to
        cdef uint64_t *seqs = NULL
        cdef int64_t limit = most, n, i
        with nogil:
            pthread_mutex_lock(&self.lock)
            n = self.multi_last_seqs(f, last, limit, &seqs)
            pthread_mutex_unlock(&self.lock)
            filter_free(f)
        if n == -1:
            raise MemoryError
        if n < 0:
            raise StoreFailure(STORE_TOO_LARGE, "too many results")
        try:
            return [seqs[i] for i in range(n)]
        finally:
            free(seqs)

    def seq_at(self, ts: int) -> int:
        """Return the first sequence stored at or after a time in ns since 1970, or the last sequence + 1."""
        cdef int64_t when = ts
        cdef uint64_t seq
        with nogil:
            pthread_mutex_lock(&self.lock)
            seq = self.seq_from_time(when)
            pthread_mutex_unlock(&self.lock)
        return seq

    def subjects_state(self, filters=()) -> dict[bytes, tuple[int, int, int]]:
        """Return {subject: (messages, first sequence, last sequence)} of the subjects that the filters match."""
        cdef STreeIter it
        cdef SimpleState *st
        cdef Filter *f = filter_make(filters)
        cdef dict states = {}
        pthread_mutex_lock(&self.lock)
        try:
            iter_filter(&it, self, f)
            while stree_next(&it):
                st = <SimpleState *> it.value
                first_of(self, st, it.subject, <uint32_t> it.subject_n)
                last_of(self, st, it.subject, <uint32_t> it.subject_n)
                states[it.subject[:it.subject_n]] = (st.msgs, st.first, st.last)
            stree_end(&it)
            return states
        finally:
            pthread_mutex_unlock(&self.lock)
            filter_free(f)

    def subjects_totals(self, filters=()) -> dict[bytes, int]:
        """Return {subject: messages} of the subjects that the filters match."""
        cdef STreeIter it
        cdef Filter *f = filter_make(filters)
        cdef dict totals = {}
        pthread_mutex_lock(&self.lock)
        try:
            iter_filter(&it, self, f)
            while stree_next(&it):
                totals[it.subject[:it.subject_n]] = (<SimpleState *> it.value).msgs
            stree_end(&it)
            return totals
        finally:
            pthread_mutex_unlock(&self.lock)
            filter_free(f)

    def subjects_page(self, filters=(), size_t offset=0, size_t most=0) -> tuple[int, list[tuple[bytes, int]]]:
        """Return the number of subjects that the filters match, and [(subject, messages)] of one page of them.

        Subjects are sorted; the page begins at `offset` and has at most `most`. Any thread. Raises MemoryError.
        """
        cdef Filter *f = filter_make(filters)
        cdef Totals t
        cdef size_t i, end
        cdef bint ok
        cdef list page = []
        memset(&t, 0, sizeof(t))
        try:
            with nogil:
                pthread_mutex_lock(&self.lock)
                ok = collect_totals(self, f, &t)
                pthread_mutex_unlock(&self.lock)
                if ok:
                    sort_totals(&t)
            if not ok:
                raise MemoryError
            end = t.n if most > t.n or offset > t.n - most else offset + most
            for i in range(offset, end):
                page.append((t.all[i].subject[:t.all[i].n], t.all[i].msgs))
            return t.n, page
        finally:
            free_totals(&t)
            filter_free(f)

    def state(self):
        """Return the counts as they are now, a StreamState."""
        pthread_mutex_lock(&self.lock)
        try:
            return StreamState(
                self.msgs, self.bytes, self.first_seq, self.first_ts, self.last_seq, self.last_ts,
                self.subjects.size, self.n_deleted(), self.lost.size, self.lost_bytes, self.env.damaged)
        finally:
            pthread_mutex_unlock(&self.lock)

    cdef uint64_t n_deleted(self) noexcept nogil:
        return self.last_seq - self.first_seq + 1 - self.msgs if self.msgs else 0

    def deleted(self) -> list[tuple[int, int]]:
        """Return the ranges (first, last) of sequences without a message between first_seq and last_seq."""
        cdef MsgBlock *b
        cdef size_t i
        cdef uint64_t at, first, last
        cdef list ranges = []
        pthread_mutex_lock(&self.lock)
        try:
            if self.msgs == 0:
                return []
            at = self.first_seq
            for i in range(self.n_blks):
                b = self.blks[i]
                if b.msgs == 0:
                    continue
                if b.first_seq > at:
                    note_range(ranges, at, b.first_seq - 1)
                at = b.first_seq
                while seqset_next_range(&b.dmap, at, &first, &last):
                    note_range(ranges, first, last)
                    at = last + 1
                at = b.last_seq + 1
            if at <= self.last_seq:
                note_range(ranges, at, self.last_seq)
            return ranges
        finally:
            pthread_mutex_unlock(&self.lock)

    def lost_ranges(self) -> list[tuple[int, int]]:
        """Return the ranges (first, last) of sequences lost to damage, as far as they are known."""
        cdef uint64_t at = 0, first, last
        cdef list ranges = []
        pthread_mutex_lock(&self.lock)
        try:
            while seqset_next_range(&self.lost, at, &first, &last):
                note_range(ranges, first, last)
                at = last + 1
            return ranges
        finally:
            pthread_mutex_unlock(&self.lock)

    def newly_lost(self) -> list[tuple[int, int, int, int]]:
        """Return the losses found since the last call: [(block, first sequence, last sequence, messages)]."""
        pthread_mutex_lock(&self.lock)
        try:
            return [
                (self.notes[i].block, self.notes[i].first, self.notes[i].last, self.notes[i].n)
                for i in range(self.n_notes)
            ]
        finally:
            self.n_notes = 0
            pthread_mutex_unlock(&self.lock)

    def update_config(
        self, *, max_msgs: int = -1, max_bytes: int = -1, max_msgs_per_subject: int = -1, max_age: int = 0,
        discard_new: bool = False, discard_new_per_subject: bool = False, allow_msg_ttl: bool = False,
        delete_markers: bool = False, allow_msg_schedules: bool = False,
    ) -> None:
        """Replace all limits, and remove the messages over the new ones. max_age is in ns; -1 and 0 mean no limit.

        allow_msg_ttl: messages expire by their Nats-TTL. delete_markers: the stream, not the store, removes expired
        messages. allow_msg_schedules: messages may be schedules, which the stream carries out. Raises StoreFailure.
        """
        cdef StoreLimits limits
        cdef int code = STORE_OK
        limits.max_msgs = max_msgs
        limits.max_bytes = max_bytes
        limits.max_msgs_per = max_msgs_per_subject
        limits.max_age = max_age
        limits.discard_new = discard_new
        limits.discard_new_per = discard_new_per_subject
        limits.allow_ttl = allow_msg_ttl
        limits.delete_markers = delete_markers
        limits.allow_schedules = allow_msg_schedules
        with nogil:
            pthread_mutex_lock(&self.lock)
            self.limits = limits
            self.age_seq = 0
            if not limits.allow_schedules:
                schedules_clear(&self.schedules)
                self.schedules_from = 0
                self.tracks_schedules = False
            elif not self.tracks_schedules and not self.closed:
                scheduling.schedule_scan(self, self.first_seq)
                self.tracks_schedules = True
                self.dirty += 1
            if not self.closed and self.env.error == 0:
                code = removing.enforce_per_subject(self)
                if code == STORE_OK:
                    code = removing.enforce_msgs(self)
                if code == STORE_OK:
                    code = removing.enforce_bytes(self)
                code = flushed(self, code)
            pthread_mutex_unlock(&self.lock)
        self.check(code)

    def write_state(self, force: bool = False) -> None:
        """Write index.db if anything changed; with it the store opens without reading its records.

        Without `force`, a store with more than a million subjects or deletions leaves it to close(). Raises OSError;
        the store is not frozen then.
        """
        cdef bint now = force
        cdef int rc
        with nogil:
            rc = maintenance.write_state(self, now)
        if rc:
            raise OSError(rc, os.strerror(rc), "index.db")

    def rests(self) -> bool:
        """Return whether sync_flushed(), write_state() and maintain() would find nothing to do."""
        cdef bint rest
        with nogil:
            rest = maintenance.rests(self)
        return rest

    def maintain(self, rewrites: int = 4, idle: int = 2) -> int:
        """Rewrite at most `rewrites` sparse blocks and return their number; unload blocks unused for `idle` calls.

        For a thread that may wait for the disk.
        """
        cdef uint32_t most = rewrites, ticks = idle, n = 0
        with nogil:
            pthread_mutex_lock(&self.lock)
            if self.subjects_stale and not self.closed:
                rebuild_subjects(self)
            pthread_mutex_unlock(&self.lock)
            while n < most and maintenance.rewrite_next(self):
                n += 1
            maintenance.unload_idle(self, ticks)
            purging.remove_purged(self.env.storefd)
        return n

    def close(self) -> None:
        """Write the messages that wait, and the state files, and close; with sync_always, sync what was written.

        Raises StoreFailure when a write or a sync failed. Closing again does nothing.
        """
        cdef int rc
        if self.closed:
            return
        with nogil:
            maintenance.write_state(self, True)
            pthread_mutex_lock(&self.lock)
            # With sync_always, acknowledgements may be about to leave: sync() finds nothing to do in a closed store.
            rc = sync_written(self)
            self.closed = True
            pthread_mutex_unlock(&self.lock)
        self.release()
        if rc != 0:
            self.check(STORE_FAILED)

    cdef void release(self) noexcept nogil:
        # Mappings are retired, not unmapped: readers may still hold pointers into them.
        pthread_mutex_lock(&self.lock)
        while self.n_blks:
            blk_forget(self, self.blks[self.n_blks - 1])
        stree_clear(&self.subjects)
        if self.env.dirfd >= 0:
            close(self.env.dirfd)
        if self.env.storefd >= 0:
            close(self.env.storefd)
        self.env.dirfd = self.env.storefd = -1
        pthread_mutex_unlock(&self.lock)


cdef inline int flushed(MsgStore s, int code) noexcept nogil:
    # Flush a change that ended with `code`; the outcome of both.
    return STORE_FAILED if code == STORE_OK and flush_last(s) != 0 else code


cdef int note_range(list ranges, uint64_t first, uint64_t last) except -1:
    cdef tuple before = ranges[len(ranges) - 1] if ranges else None
    if before is not None and before[1] + 1 == first:
        ranges.pop()
        first = before[0]
    ranges.append((first, last))
    return 0


cdef tuple as_tuple(const StoreMsg *msg):
    return (
        msg.seq, msg.ts, msg.subject[:msg.subject_n], msg.hdr[:msg.hdr_n],
        (msg.hdr + msg.hdr_n)[:msg.msg_n],
    )


cdef class MemStore(MsgStore):
    """A store in memory. block_size is in bytes; the other keywords are those of update_config."""

    def __init__(self, name: str = "", *, block_size: int = 1024 * 1024, first_seq: int = 0, **limits) -> None:
        cdef int code = STORE_OK
        self.name_bytes = name.encode()
        self.env.name = PyBytes_AS_STRING(self.name_bytes)
        self.env.name_n = <uint32_t> len(self.name_bytes)
        self.env.in_memory = True
        self.env.block_size = block_size
        if first_seq - 1 > MAX_SEQ:
            self.check(STORE_NO_SEQ)
        if first_seq > 1:
            self.first_seq = first_seq
            self.last_seq = first_seq - 1
        with nogil:
            code = roll(self)
        self.check(code)
        self.closed = False
        self.update_config(**limits)


cdef class FileStore(MsgStore):
    """A store in the directory of a stream, with its blocks in `msgs`.

    name is the stream's. block_size is in bytes (dyn_block_size). sync_always: before a file goes that newer records
    replace, those are synced. compression "s2": maintain() compresses full blocks. cipher ("chacha" or "aes") encrypts
    the files under `key`, the server's, and the name of `account`. warn is called with each message (str) of recovery.
    A block in which more than `most_gaps` sequences have no record counts as damaged from there on: gaps take memory.
    The other keywords are those of update_config. Raises OSError when the directory cannot be opened.
    """

    def __init__(
        self, directory: str, name: str, *, block_size: int = 8 * 1024 * 1024, sync_always: bool = False,
        first_seq: int = 0, compression: str = "none", cipher: str | None = None, key: bytes = b"",
        account: str = "", warn=None, most_gaps: int = 2**32 - 1, **limits,
    ) -> None:
        cdef uint64_t purged
        cdef uint64_t first = first_seq
        cdef int code = STORE_OK
        self.name_bytes = name.encode()
        self.directory = os.fspath(directory)
        self.env.name = PyBytes_AS_STRING(self.name_bytes)
        self.env.name_n = <uint32_t> len(self.name_bytes)
        self.env.block_size = block_size
        self.env.sync_always = sync_always
        self.most_gaps = most_gaps
        self.compress(compression)
        if cipher is not None:
            # imported here because it loads OpenSSL
            from gnats.store.sealing import StreamSealer

            self.sealer = StreamSealer(self.directory, account, name, cipher, key)
            self.env.sealer = <Sealer *> <size_t> self.sealer.address()
        self.update_config(**limits)
        self.closed = False
        try:
            recovery.recover(self, self.directory, warn or (lambda text: None))
            if first > 1 and self.last_seq + 1 < first and self.first_seq < first:
                with nogil:
                    pthread_mutex_lock(&self.lock)
                    code = removing.purge(self, first, &purged)
                    pthread_mutex_unlock(&self.lock)
                    purging.remove_purged(self.env.storefd)
                self.check(code)
        except BaseException:
            self.closed = True
            self.release()
            raise

    def compress(self, compression: str) -> None:
        """Compress ("s2") or not ("none") the blocks that fill up from now on, and older ones when rewritten."""
        if compression not in ("none", "s2"):
            raise ValueError(f"compression {compression!r} is not known")
        pthread_mutex_lock(&self.lock)
        self.env.compress = compression == "s2"
        pthread_mutex_unlock(&self.lock)

    def delete(self) -> None:
        """Close, and remove `msgs` and the directories that a purge left. Raises OSError."""
        try:
            self.close()
        except StoreFailure:
            pass    # all its files are removed anyway
        for name in ("msgs", "__msgs__", "__new_msgs__"):
            path = os.path.join(self.directory, name)
            if os.path.isdir(path):
                shutil.rmtree(path)
