"""Backups of streams; see backup.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset, strlen

from gnats.core.runtime.clock cimport realtime_ns
from gnats.core.runtime.quiesce cimport QsParticipant, qs_offline, qs_online, qs_register, qs_unregister
from gnats.core.subjects.subject cimport is_valid_publish_subject
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport put_text
from gnats.includes.times cimport time_after
from gnats.includes.units cimport SECOND
from gnats.includes.varint cimport MAX_VARINT, get_uvarint, get_varint, put_uvarint, put_varint
from gnats.store.base cimport STORE_DAMAGED, STORE_EOF, STORE_NO_MEMORY, STORE_OK
from gnats.store.expiry cimport header_ttl
from gnats.store.format.record cimport RECORD_HEADER, RECORD_OK, Record, record_decode, record_size
from gnats.codec.s2 cimport (
    S2_BLOCK,
    S2_CHUNK_HEADER,
    S2_IDENTIFIER,
    S2_TABLE_BITS,
    S2Chunk,
    s2_bound,
    s2_decode_chunk,
    s2_next_chunk,
    s2_put_chunk,
    s2_put_identifier,
)
from gnats.store.store import StoreFailure

cdef enum:
    TAKEN = 256                   # messages looked up under one lock
    TAKEN_BYTES = 256 * 1024
    PART = 256 * 1024             # bytes worth compressing
    LONGEST_NAME = 1 << 20
    LARGEST_ENTRY = 64 << 20      # of a state or a consumer

cdef enum Kind:
    UNKNOWN = 0
    TAR = 1
    ARCHIVE = 2

# Results of reading, besides 1: it has been read.
cdef enum:
    MORE = 0                      # needs more input
    END = -1                      # the input has ended, between two entries
    BAD_S2 = -2
    BAD_ARCHIVE = -3
    NO_MEMORY = -4

# Reasons not to store a message, besides a StoreError.
cdef enum:
    OUT_OF_ORDER = -10
    OVER_PAYLOAD = -11
    OVER_MSG_SIZE = -12
    BAD_SUBJECT = -13
    NO_SEQUENCE = -14

cdef extern from * nogil:
    """
    #define GNATS_ARCHIVE_MAGIC "NATSARC1"
    """
    const char *MAGIC "GNATS_ARCHIVE_MAGIC"


class BackupError(ValueError):
    """A backup cannot be made or restored; the text is nats-server's."""


# ---- bytes ----

cdef int make_room(Bytes *b, size_t n) noexcept nogil:
    # Make room for n more bytes. -1: out of memory.
    cdef uint8_t *p
    cdef size_t room
    if b.at == b.n:
        b.at = b.n = 0
    if b.n + n <= b.room:
        return 0
    if b.at:
        memmove(b.p, b.p + b.at, b.n - b.at)
        b.n -= b.at
        b.at = 0
        if b.n + n <= b.room:
            return 0
    room = max(b.n + n, min(b.room * 2, b.room + (8 << 20)))
    p = <uint8_t *> realloc(b.p, room)
    if p == NULL:
        return -1
    b.p = p
    b.room = room
    return 0


cdef int put_entry(
    Bytes *to, const char *name, size_t name_n, int64_t ts, uint64_t seq, size_t hdr_n, size_t payload_n,
    const char *body,
) noexcept nogil:
    cdef uint8_t *p
    if make_room(to, 5 * MAX_VARINT + name_n + hdr_n + payload_n) != 0:
        return -1
    p = put_uvarint(to.p + to.n, name_n)
    p = put_varint(p, ts)
    p = put_uvarint(p, seq)
    p = put_uvarint(p, hdr_n)
    p = put_uvarint(p, payload_n)
    memcpy(p, name, name_n)
    p += name_n
    memcpy(p, body, hdr_n + payload_n)
    to.n = p + hdr_n + payload_n - to.p
    return 0


# ---- making ----

cdef class BackupWriter:
    """Makes a backup of the messages of a store up to the sequence `last`, a piece at a time.

    The store stays in use; messages that are removed before they are read are not in the backup. Raises MemoryError.
    """

    def __cinit__(self, MsgStore store not None, *, uint64_t last):
        self.store = store
        self.last_seq = last
        self.damaged = store.env.damaged
        self.table = <uint32_t *> malloc(sizeof(uint32_t) << S2_TABLE_BITS)
        self.taken = <StoreMsg *> malloc(TAKEN * sizeof(StoreMsg))
        if self.table == NULL or self.taken == NULL or make_room(&self.raw, PART) != 0:
            raise MemoryError
        put_text(<char *> self.raw.p, MAGIC)
        self.raw.n = strlen(MAGIC)

    def __dealloc__(self):
        free(self.raw.p)
        free(self.out.p)
        free(self.table)
        free(self.taken)

    def add(self, bytes name not None, bytes payload not None, int64_t ts) -> None:
        """Add an entry that is not a message; before the first read(). `ts` is in ns since 1970."""
        if self.begun:
            raise RuntimeError("messages have been written")
        if put_entry(
                &self.raw, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), ts, 0, 0, PyBytes_GET_SIZE(payload),
                PyBytes_AS_STRING(payload)) != 0:
            raise MemoryError

    def read(self, size_t n) -> bytes:
        """Return the next n bytes of the backup, fewer at the end, then b"". Any thread; may wait for the disk.

        Raises BackupError when the store cannot be read, MemoryError.
        """
        cdef QsParticipant me
        cdef int code = STORE_OK
        self.begun = True
        if self.out.p == NULL:
            if make_room(&self.out, S2_IDENTIFIER) != 0:
                raise MemoryError
            s2_put_identifier(self.out.p)
            self.out.n = S2_IDENTIFIER
        with nogil:
            qs_register(&me)
            while code == STORE_OK and not self.finished and self.out.n - self.out.at < n:
                while code == STORE_OK and not self.finished and self.raw.n < PART:
                    # The messages that gather() finds stay readable while this thread is online.
                    qs_online(&me)
                    code = self.fill()
                    qs_offline(&me)
                if code == STORE_OK:
                    code = self.compress()
            qs_unregister(&me)
        if code == STORE_NO_MEMORY:
            raise MemoryError
        if code == STORE_DAMAGED:
            raise BackupError(f"couldn't load next message after seq {self.bad_seq}: the message cannot be read")
        if code != STORE_OK:
            try:
                self.store.check(code)
            except StoreFailure as exc:
                raise BackupError(f"couldn't load next message after seq {self.next_seq}: {exc}") from exc
        n = min(n, self.out.n - self.out.at)
        piece = PyBytes_FromStringAndSize(<char *> self.out.p + self.out.at, n)
        self.out.at += n
        return piece

    cdef int fill(self) noexcept nogil:
        cdef int n = self.gather()
        if n > 0:
            return self.add_taken(n)
        if n == 0:
            self.finished = True
            return STORE_OK if put_entry(&self.raw, b"", 0, 0, 0, 0, 0, b"") == 0 else STORE_NO_MEMORY
        return -n

    cdef int gather(self) noexcept nogil:
        # Look up the next messages of one block, to be copied without the lock. Return their number, or -StoreError.
        cdef StoreMsg *msg
        cdef size_t bytes = 0
        cdef int n = 0, code = STORE_OK
        cdef void *block = NULL
        pthread_mutex_lock(&self.store.lock)
        while n < TAKEN and bytes < TAKEN_BYTES and self.next_seq <= self.last_seq:
            msg = &self.taken[n]
            code = self.store.load_next(NULL, self.next_seq, msg, NULL)
            if code != STORE_OK or msg.seq > self.last_seq:
                break
            if block == NULL:
                block = <void *> self.store.near
                self.key = self.store.near.key
            elif block != <void *> self.store.near:
                break
            bytes += msg.subject_n + msg.hdr_n + msg.msg_n
            self.next_seq = msg.seq + 1
            n += 1
        if self.store.env.damaged != self.damaged:
            self.bad_seq = self.next_seq
            code = STORE_DAMAGED
            n = 0
        pthread_mutex_unlock(&self.store.lock)
        if n == 0 and code != STORE_OK and code != STORE_EOF:
            return -code
        return n

    cdef int add_taken(self, int n) noexcept nogil:
        cdef StoreMsg *msg
        cdef Record r
        cdef const char *record
        cdef int i
        for i in range(n):
            msg = &self.taken[i]
            if not self.store.env.in_memory:
                record = msg.subject - RECORD_HEADER
                if record_decode(
                        record, record_size(msg.subject_n, msg.hdr_n, msg.msg_n), &self.key, &r) != RECORD_OK:
                    self.bad_seq = msg.seq
                    return STORE_DAMAGED
            if put_entry(
                    &self.raw, msg.subject, msg.subject_n, msg.ts, msg.seq, msg.hdr_n, msg.msg_n, msg.hdr) != 0:
                return STORE_NO_MEMORY
        return STORE_OK

    cdef int compress(self) noexcept nogil:
        cdef size_t n, part
        while self.raw.at < self.raw.n:
            n = self.raw.n - self.raw.at
            part = min(n, <size_t> S2_BLOCK)
            if make_room(&self.out, s2_bound(part)) != 0:
                return STORE_NO_MEMORY
            self.out.n += s2_put_chunk(self.raw.p + self.raw.at, part, self.out.p + self.out.n, self.table)
            self.raw.at += part
        self.raw.at = self.raw.n = 0
        return STORE_OK


# ---- restoring ----

cdef class BackupReader:
    """Decodes a backup as it arrives.

    feed() it with input; then call take(), or entry() and store_into(), depending on `version`, until they need more.
    `max_payload` is the largest message in bytes, `max_msg_size` the stream's limit (negative: none), `max_subject` the
    longest subject. With `keep_expired`, messages are stored and kept whatever their TTL.
    """

    def __cinit__(
        self, *, uint64_t max_payload, uint64_t max_subject, int64_t max_msg_size=-1, bint keep_expired=False
    ):
        self.keep_expired = keep_expired
        self.max_payload = max_payload
        self.max_subject = max_subject
        self.max_msg_size = <uint64_t> max_msg_size if max_msg_size >= 0 else <uint64_t> INT64_MAX

    def __dealloc__(self):
        free(self.source.p)
        free(self.plain.p)

    def feed(self, bytes data not None) -> None:
        """Add input; b"" says that it has ended. Raises MemoryError."""
        cdef size_t n = PyBytes_GET_SIZE(data)
        if self.complete:
            return
        if n == 0:
            self.ended = True
            return
        if make_room(&self.source, n) != 0:
            raise MemoryError
        memcpy(self.source.p + self.source.n, PyBytes_AS_STRING(data), n)
        self.source.n += n

    @property
    def version(self) -> int:
        """1: a tar file, 2: an archive, 0: needs more input. Raises BackupError, MemoryError."""
        cdef int code
        if self.kind == UNKNOWN:
            with nogil:
                code = self.need(strlen(MAGIC))
            if code == 1:
                self.kind = TAR
                if memcmp(self.plain.p + self.plain.at, MAGIC, strlen(MAGIC)) == 0:
                    self.kind = ARCHIVE
                    self.plain.at += strlen(MAGIC)
            elif code == END and self.plain.n > self.plain.at:
                raise BackupError("unexpected EOF")
            else:
                check(code)
        return self.kind

    @property
    def is_complete(self) -> bool:
        """Whether the end of an archive has been read; later input is ignored."""
        return self.complete

    def take(self, size_t most) -> bytes | None:
        """Return the next bytes of a tar file, at most `most`; b"": needs more input, None: the file has ended.

        Raises BackupError, MemoryError.
        """
        cdef int code
        with nogil:
            code = self.need(most)
        if code != END:
            check(code)
        elif self.plain.n == self.plain.at:
            return None
        most = min(most, self.plain.n - self.plain.at)
        piece = PyBytes_FromStringAndSize(<char *> self.plain.p + self.plain.at, most)
        self.plain.at += most
        return piece

    def entry(self) -> tuple[bytes, bytes] | None:
        """Return (name, payload) of the next entry, which must not be a message; None: needs more input.

        Raises BackupError, MemoryError.
        """
        cdef Entry e
        cdef int code
        with nogil:
            code = self.next_entry(&e)
            if code == 1:
                code = BAD_ARCHIVE if e.hdr_n + e.payload_n > LARGEST_ENTRY else self.whole(&e)
        check(code)
        if code == MORE:
            return None
        found = (<char *> e.name)[:e.name_n], (<char *> e.body)[:e.hdr_n + e.payload_n]
        self.plain.at += e.head + e.hdr_n + e.payload_n
        return found

    cdef int whole(self, Entry *e) noexcept nogil:
        # Read the rest of an entry, after next_entry(). Return 1, MORE or an error.
        cdef size_t name_at = e.name - (self.plain.p + self.plain.at)
        cdef int code = self.need(e.head + e.hdr_n + e.payload_n)
        if code == END:
            return BAD_ARCHIVE
        e.name = self.plain.p + self.plain.at + name_at
        e.body = self.plain.p + self.plain.at + e.head
        return code

    def begin(self, uint64_t first_seq) -> None:
        """Expect messages from now on; the first has sequence `first_seq` or a later one."""
        self.lseq = max(first_seq, <uint64_t> 1) - 1

    @property
    def last_seq(self) -> int:
        """The sequence of the last message read."""
        return self.lseq

    def store_into(self, MsgStore store not None, uint64_t most) -> int:
        """Store messages until it needs more input, has read all, or has stored `most` bytes; return the bytes stored.

        Does not flush. Any thread. Raises BackupError, StoreFailure, MemoryError.
        """
        cdef Entry e
        cdef int code = 1
        cdef int64_t now = realtime_ns()
        cdef uint64_t taken = 0
        memset(&e, 0, sizeof(e))
        with nogil:
            while taken < most and not self.complete:
                code = self.next_entry(&e)
                if code != 1:
                    break
                if e.seq == 0:
                    if e.ts or e.hdr_n or e.payload_n:
                        code = NO_SEQUENCE
                        break
                    self.complete = True
                    self.plain.at = self.plain.n
                    break
                code = self.check_entry(&e)
                if code == 1:
                    code = self.whole(&e)
                if code != 1:
                    break
                code = self.store_entry(store, &e, now)
                self.plain.at += e.head + e.hdr_n + e.payload_n
                taken += record_size(e.name_n, e.hdr_n, e.payload_n)
                if code != STORE_OK:
                    break
                code = 1
        if code == OUT_OF_ORDER:
            raise BackupError(f"message sequence {e.seq} out of order")
        if code == OVER_PAYLOAD:
            raise BackupError(f"message sequence {e.seq} exceeds maximum payload size")
        if code == OVER_MSG_SIZE:
            raise BackupError(f"message sequence {e.seq} exceeds maximum message size")
        if code == BAD_SUBJECT:
            raise BackupError(f"message sequence {e.seq} has an invalid subject")
        if code == NO_SEQUENCE:
            raise BackupError("expected message sequence")
        if code > 1:
            store.check(code)
        check(code)
        return taken

    cdef int check_entry(self, const Entry *e) noexcept nogil:
        # Check a message's sizes, sequence and subject, before memory is allocated for it.
        if e.hdr_n > self.max_payload or e.payload_n > self.max_payload - e.hdr_n:
            return OVER_PAYLOAD
        if e.hdr_n + e.payload_n > self.max_msg_size:
            return OVER_MSG_SIZE
        if e.seq <= self.lseq or e.seq > <uint64_t> INT64_MAX:
            return OUT_OF_ORDER
        if e.name_n > self.max_subject or not is_valid_publish_subject(<const char *> e.name, e.name_n):
            return BAD_SUBJECT
        return 1

    cdef int store_entry(self, MsgStore store, const Entry *e, int64_t now) noexcept nogil:
        cdef uint64_t gap = e.seq - self.lseq - 1
        cdef const char *hdr = <const char *> e.body
        cdef int64_t ttl = header_ttl(hdr, <uint32_t> e.hdr_n) if e.hdr_n and not self.keep_expired else 0
        cdef int code = STORE_OK
        pthread_mutex_lock(&store.lock)
        if gap:
            code = store.skip_msgs(self.lseq + 1, gap)
        self.lseq = e.seq
        if code == STORE_OK:
            if ttl > 0 and time_after(e.ts // SECOND, ttl) < now // SECOND:
                # The message has expired; no other message gets its sequence.
                code = store.skip_msgs(e.seq, 1)
            else:
                code = store.store_raw(
                    <const char *> e.name, <uint32_t> e.name_n, hdr, <uint32_t> e.hdr_n, hdr + e.hdr_n,
                    <uint32_t> e.payload_n, e.seq, e.ts, ttl)
        pthread_mutex_unlock(&store.lock)
        return code

    cdef int next_entry(self, Entry *e) noexcept nogil:
        # Read the head of the next entry without consuming it. Return 1, MORE or an error.
        cdef const uint8_t *p
        cdef const uint8_t *end
        cdef bint ended = False
        cdef int code
        while True:
            p = self.plain.p + self.plain.at
            end = self.plain.p + self.plain.n
            if (get_uvarint(&p, end, &e.name_n) and get_varint(&p, end, &e.ts) and get_uvarint(&p, end, &e.seq)
                    and get_uvarint(&p, end, &e.hdr_n) and get_uvarint(&p, end, &e.payload_n)):
                if (e.name_n > LONGEST_NAME or e.hdr_n > <uint64_t> INT64_MAX
                        or e.payload_n > <uint64_t> INT64_MAX - e.hdr_n):
                    return BAD_ARCHIVE
                e.name = p
                e.head = p + e.name_n - (self.plain.p + self.plain.at)
                if self.plain.n - self.plain.at >= e.head:
                    return 1
            elif self.plain.n - self.plain.at >= 5 * MAX_VARINT:
                return BAD_ARCHIVE
            if ended:
                return END if self.plain.n == self.plain.at else BAD_ARCHIVE
            code = self.decode()
            if code == END:
                ended = True
            elif code != 1:
                return code

    cdef int need(self, size_t n) noexcept nogil:
        # Decompress until n bytes are in `plain`. Return 1, MORE, END (the input ended before) or an error.
        cdef int code
        while self.plain.n - self.plain.at < n:
            code = self.decode()
            if code != 1:
                return code
        return 1

    cdef int decode(self) noexcept nogil:
        # Decompress the next chunk. Return 1, MORE, END or an error.
        cdef const uint8_t *p = self.source.p + self.source.at
        cdef size_t n = self.source.n - self.source.at
        cdef size_t length
        cdef S2Chunk c
        if n == 0:
            return END if self.ended else MORE
        if n >= S2_CHUNK_HEADER:
            length = S2_CHUNK_HEADER + (p[1] | <size_t> p[2] << 8 | <size_t> p[3] << 16)
            if n >= length:
                if s2_next_chunk(&p, p + length, not self.begun, &c) != 1:
                    return BAD_S2
                self.begun = True
                if make_room(&self.plain, c.size) != 0:
                    return NO_MEMORY
                if s2_decode_chunk(&c, self.plain.p + self.plain.n) != 0:
                    return BAD_S2
                self.plain.n += c.size
                self.source.at += length
                return 1
            if not self.begun and n >= S2_IDENTIFIER:
                return BAD_S2
        return BAD_S2 if self.ended else MORE


cdef int check(int code) except -1:
    if code == NO_MEMORY:
        raise MemoryError
    if code == BAD_S2:
        raise BackupError("s2: corrupt input")
    if code == BAD_ARCHIVE:
        raise BackupError("archive: invalid archive stream")
    if code == END:
        raise BackupError("EOF")
    return 0
