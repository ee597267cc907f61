"""Read blocks into batches of Arrow columns, and compute the sums that a snapshot of a stream needs."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from posix.unistd cimport pread

import os

from gnats.archive.arrow cimport ROW_SIZE, batch_add, batch_capsule, batch_free, batch_init, batch_text_full
from gnats.archive.columns cimport BATCH_FULL, Batch
from gnats.archive.spare cimport spare_enter, spare_leave
from gnats.archive.walk cimport (
    DAMAGE_GAP,
    DAMAGE_HASH,
    DAMAGE_LENGTHS,
    LEAD,
    WALK_END,
    WALK_NO_MEMORY,
    WALK_RECORD,
    Walk,
    walk_free,
    walk_into,
    walk_next,
)
from gnats.store.format.highway cimport highway_key_of
from gnats.store.format.record cimport MESSAGE, TOMBSTONE, Record, record_stored_hash
from gnats.store.index.filter cimport Filter, filter_free, filter_make, filter_match
from gnats.store.index.seqset cimport SeqSet, SequenceSet, seqset_exists, seqset_insert, seqset_insert_range
from gnats.store.index.stree cimport STree, SimpleState, stree_clear, stree_find, stree_init, stree_insert

cdef enum:
    SCAN_FULL = 2

REASONS = {
    DAMAGE_LENGTHS: "no record begins here",
    DAMAGE_HASH: "the checksum of a record is wrong",
    DAMAGE_GAP: "a record of a sequence that cannot be",
}


class ReadError(OSError):
    """A block file could not be read."""


cdef class BlockReader:
    """Reads one block: an open file that is neither compressed nor encrypted, or the decoded content of any block.

    name is the stream's. content is bytes or a descriptor, which the caller owns and keeps open. start is the offset
    to begin at, `after` the sequence of the last message before it (0: none). One thread at a time.
    """
    cdef Walk walk
    cdef Record record
    cdef bint held             # `record` did not fit into the last batch and goes into the next
    cdef readonly bint done
    cdef readonly uint32_t index
    cdef bytes content

    def __cinit__(self, str name not None, uint32_t index, content, bint is_last, uint64_t start=0, uint64_t after=0):
        cdef bytes key = f"{name}-{index}".encode()
        highway_key_of(&self.walk.key, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
        self.index = index
        self.walk.is_last = is_last
        self.walk.last = after
        self.walk.seen = after != 0
        self.walk.fd = -1
        if isinstance(content, bytes):
            self.content = content
            self.walk.window = <const uint8_t *> PyBytes_AS_STRING(self.content)
            self.walk.n = PyBytes_GET_SIZE(self.content)
            self.walk.end = self.walk.n
        else:
            self.walk.fd = content
            self.walk.end = os.fstat(content).st_size
        self.walk.at = min(start, self.walk.end)
        if self.content is None:
            self.walk.start = self.walk.at

    def __dealloc__(self):
        walk_free(&self.walk)

    @property
    def last_seq(self) -> int:
        """Sequence of the last record read that is not a tombstone; 0: there was none."""
        return self.walk.last

    @property
    def end(self) -> int:
        """Size of the block in bytes."""
        return self.walk.end

    def last_checksum(self) -> int:
        """Return the last 8 bytes of the block as a number; 0 if it has fewer, or they cannot be read."""
        cdef uint64_t sum64 = 0
        if self.walk.end < sizeof(sum64):
            return 0
        if self.walk.fd < 0:
            memcpy(&sum64, self.walk.window + self.walk.end - sizeof(sum64), sizeof(sum64))
        elif pread(self.walk.fd, &sum64, sizeof(sum64), self.walk.end - sizeof(sum64)) != sizeof(sum64):
            return 0
        return sum64

    def holes(self) -> list[tuple[int, int, int, int, str]]:
        """Return the parts already read that are not records: (start, end, first sequence, last sequence, reason).

        A sequence of 0 is not known. An empty reason: the end of the last block, where a server may be writing.
        """
        cdef size_t i
        found = []
        for i in range(self.walk.n_holes):
            hole = self.walk.holes[i]
            found.append((hole.start, hole.end, hole.first, hole.last, REASONS.get(hole.kind, "")))
        return found

    cdef int failed(self, int rc) except -1:
        if rc == WALK_NO_MEMORY:
            raise MemoryError
        if rc < 0:
            raise ReadError(self.walk.err, os.strerror(self.walk.err), f"{self.index}.blk")
        return 0


cdef struct Chosen:
    # which messages to read; bounds are included
    uint64_t first, last        # sequences
    int64_t start, last_ts      # ns since 1970
    Filter *filter
    SeqSet *deleted


cdef inline bint chosen(const Chosen *c, const Record *r) noexcept nogil:
    return (r.kind == MESSAGE and r.seq >= c.first and c.start <= r.ts <= c.last_ts
            and (c.deleted.size == 0 or not seqset_exists(c.deleted, r.seq))
            and (c.filter == NULL or filter_match(c.filter, r.subject, r.subject_n)))


cdef inline void choose_all(Chosen *c, uint64_t low, SequenceSet deleted):
    memset(c, 0, sizeof(c[0]))
    c.first = low
    c.start = INT64_MIN
    c.last_ts = INT64_MAX
    c.deleted = &deleted.set


cdef int walk_chosen(Walk *w, const Chosen *c, Record *r) noexcept nogil:
    cdef int rc = walk_next(w, r)
    while rc == WALK_RECORD and not chosen(c, r):
        rc = walk_next(w, r)
    return rc


cdef int scan_large(Walk *w, Record *r, uint32_t index, const Chosen *c, Batch *b) noexcept nogil:
    # Read the next message directly into the batch, if it is large. WALK_RECORD; 0: it is not; WALK_NO_MEMORY. The
    # batch must have room for any headers and subject before the payload, since this message cannot be held back.
    cdef char[LEAD] saved
    cdef char *payload = <char *> b.payload.at + b.payload.n
    cdef size_t lead = 0, room, front = LEAD + ROW_SIZE
    cdef int rc = 0
    if b.rows == 0 or b.rows == b.most_rows or b.bytes + front >= b.most_bytes or batch_text_full(b, LEAD, LEAD):
        return 0
    room = min(b.most_bytes - b.bytes - front, b.payload.room - b.payload.n)
    if walk_into(w, payload, b.payload.n, room, saved, &lead, r) != WALK_RECORD:
        return 0
    if r.seq <= c.last and chosen(c, r):
        rc = batch_add(b, r.seq, r.ts, index, r.subject, r.subject_n, r.hdr, r.hdr_n, r.msg, r.msg_n)
    memcpy(payload - lead, saved, lead)
    return WALK_RECORD if rc == 0 else WALK_NO_MEMORY


cdef int scan(Walk *w, Record *r, bint *held, uint32_t index, const Chosen *c, Batch *b) noexcept nogil:
    cdef int rc
    while True:
        if not held[0]:
            if w.large:
                rc = scan_large(w, r, index, c, b)
                if rc < 0:
                    return rc
                if rc == WALK_RECORD:
                    continue
            rc = walk_next(w, r)
            if rc != WALK_RECORD:
                return rc
            if r.kind != TOMBSTONE and r.seq > c.last:
                return WALK_END
            if not chosen(c, r):
                continue
        rc = batch_add(b, r.seq, r.ts, index, r.subject, r.subject_n, r.hdr, r.hdr_n, r.msg, r.msg_n)
        held[0] = rc == BATCH_FULL
        if rc == BATCH_FULL:
            return SCAN_FULL
        if rc != 0:
            return WALK_NO_MEMORY


cdef class Scanner:
    """Fills batches with the messages of one block after the other.

    Reads messages with sequences from first to last, both included, and times from start to before end (ns; None: no
    limit), whose subjects match one of the filters (none: all), and which are not in `deleted`. One thread at a time.
    """
    cdef Batch batch
    cdef Chosen chosen
    cdef SequenceSet deleted

    def __cinit__(
        self, SequenceSet deleted not None, uint64_t first, uint64_t last, start, end, filters,
        uint32_t most_rows, size_t most_bytes,
    ):
        spare_enter()
        self.deleted = deleted
        self.chosen.deleted = &self.deleted.set
        self.chosen.first = first
        self.chosen.last = last
        self.chosen.start = INT64_MIN if start is None else start
        self.chosen.last_ts = INT64_MAX if end is None else end - 1
        self.chosen.filter = filter_make(filters)
        batch_init(&self.batch, most_rows, most_bytes)

    def __dealloc__(self):
        filter_free(self.chosen.filter)
        batch_free(&self.batch)
        spare_leave()

    @property
    def rows(self) -> int:
        """Number of messages in the current batch."""
        return self.batch.rows

    @property
    def payload_bytes(self) -> int:
        """Bytes of the payloads in the current batch."""
        return self.batch.payload.n

    def fill(self, BlockReader block not None, uint64_t low) -> bool:
        """Add a block's messages from sequence `low` on. False: the batch is full; take() it and call again.

        Raises ReadError or MemoryError.
        """
        cdef Chosen c = self.chosen
        cdef int rc
        c.first = max(c.first, low)
        with nogil:
            rc = scan(&block.walk, &block.record, &block.held, block.index, &c, &self.batch)
        if rc == SCAN_FULL:
            return False
        block.failed(rc)
        block.done = True
        return True

    def take(self) -> object:
        """Return the batch, a struct array in a PyCapsule for Arrow, and begin the next. Raises MemoryError."""
        return batch_capsule(&self.batch)


cdef struct Sums:
    uint64_t first, last, msgs, bytes, tomb
    int64_t first_ts, last_ts, low_ts, high_ts


cdef int add_up(Walk *w, Record *r, uint64_t low, SeqSet *deleted, SeqSet *absent, Sums *s) noexcept nogil:
    cdef int rc
    cdef uint64_t last = 0
    while True:
        rc = walk_next(w, r)
        if rc != WALK_RECORD:
            return rc
        if r.kind == TOMBSTONE:
            s.tomb = max(s.tomb, r.seq)
            if seqset_insert(deleted, r.seq) < 0:
                return WALK_NO_MEMORY
            continue
        if s.msgs and r.seq > last + 1 and seqset_insert_range(absent, last + 1, r.seq - 1) < 0:
            return WALK_NO_MEMORY
        last = r.seq
        s.last = r.seq
        if r.kind != MESSAGE or r.seq < low:
            if seqset_insert(absent, r.seq) < 0:
                return WALK_NO_MEMORY
            continue
        if s.msgs == 0:
            s.first = r.seq
            s.low_ts = s.high_ts = r.ts
        s.low_ts = min(s.low_ts, r.ts)
        s.high_ts = max(s.high_ts, r.ts)
        s.msgs += 1
        s.bytes += r.size


def gather(BlockReader block not None, uint64_t low, SequenceSet deleted not None, SequenceSet absent not None):
    """Return the sums of a block's messages from sequence `low` on.

    They are (first sequence of a message, last sequence of any record except tombstones, messages, bytes of their
    records, earliest time, latest time, greatest sequence of a tombstone). Add the sequences of tombstones to
    `deleted`, and the sequences without a message among the block's records to `absent`.
    """
    cdef Record r
    cdef Sums s
    cdef int rc
    memset(&s, 0, sizeof(s))
    with nogil:
        rc = add_up(&block.walk, &r, low, &deleted.set, &absent.set, &s)
    block.failed(rc)
    block.done = True
    return s.first, s.last, s.msgs, s.bytes, s.low_ts, s.high_ts, s.tomb


def find_checksum(BlockReader block not None, uint64_t sum64) -> int:
    """Return the offset at which the last record with this checksum ends; -1: there is none."""
    cdef Record r
    cdef const char *p
    cdef int64_t end = -1
    cdef int rc
    block.walk.every = True
    with nogil:
        while True:
            rc = walk_next(&block.walk, &r)
            if rc != WALK_RECORD:
                break
            p = <const char *> block.walk.window + (block.walk.at - r.size - block.walk.start)
            if record_stored_hash(p, &r) == sum64:
                end = <int64_t> block.walk.at
    block.failed(rc)
    return end


def weigh(BlockReader block not None, uint64_t low, SequenceSet deleted not None, uint64_t excess):
    """Return (size, seq): the bytes of the records of a block's messages from sequence `low` on, and the first message
    with which they reach `excess` bytes; 0: they do not."""
    cdef Chosen c
    cdef Record r
    cdef uint64_t size = 0, seq = 0
    cdef int rc
    choose_all(&c, low, deleted)
    with nogil:
        while True:
            rc = walk_chosen(&block.walk, &c, &r)
            if rc != WALK_RECORD:
                break
            size += r.size
            if seq == 0 and size >= excess:
                seq = r.seq
    block.failed(rc)
    return size, seq


cdef class Subjects:
    """Counts messages by subject, to find those over a limit of `most` messages per subject."""
    cdef STree tree
    cdef uint64_t most

    def __cinit__(self, uint64_t most):
        stree_init(&self.tree, sizeof(SimpleState))
        self.most = most

    def __dealloc__(self):
        stree_clear(&self.tree)

    def count(self, BlockReader block not None, uint64_t low, SequenceSet deleted not None) -> bool:
        """Count a block's messages; return whether one of their subjects is over the limit."""
        return self._each(block, low, deleted, False)

    def remove(self, BlockReader block not None, uint64_t low, SequenceSet deleted not None) -> None:
        """Add a block's messages over the limit to `deleted`. Call in the order of blocks, after count() of all."""
        self._each(block, low, deleted, True)

    cdef bint _each(self, BlockReader block, uint64_t low, SequenceSet deleted, bint remove) except -1:
        cdef Chosen c
        cdef Record r
        cdef SimpleState *st
        cdef bint was_there, over = False
        cdef int rc
        choose_all(&c, low, deleted)
        with nogil:
            while True:
                rc = walk_chosen(&block.walk, &c, &r)
                if rc != WALK_RECORD:
                    break
                if r.subject_n == 0:
                    continue
                if remove:
                    st = <SimpleState *> stree_find(&self.tree, r.subject, r.subject_n)
                    if st != NULL and st.msgs > self.most:
                        st.msgs -= 1
                        if seqset_insert(&deleted.set, r.seq) < 0:
                            rc = WALK_NO_MEMORY
                            break
                else:
                    st = <SimpleState *> stree_insert(&self.tree, r.subject, r.subject_n, &was_there)
                    if st == NULL:
                        rc = WALK_NO_MEMORY
                        break
                    st.msgs += 1
                    over = over or st.msgs > self.most
        block.failed(rc)
        return over
