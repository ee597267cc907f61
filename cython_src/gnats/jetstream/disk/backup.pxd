"""The format of backups, which STREAM.SNAPSHOT sends and STREAM.RESTORE receives (stream_backup.go, archive/).

A backup is an S2 stream of an archive: `NATSARC1`, then entries of

    uvarint length of the name, varint time in ns, uvarint sequence, uvarint size of the header,
    uvarint size of the payload, the name, the header, the payload

The first entry is `state.json`. Consumers follow, then messages with their subjects as names, then an entry of zeroes.
(Backups of nats-server before 2.15 are S2 streams of tar files; this module only decompresses them.)

Use an object of either class in one thread at a time. Input is untrusted: sizes are checked before memory is allocated.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.store.base cimport StoreMsg
from gnats.store.format.highway cimport HighwayKey
from gnats.store.store cimport MsgStore


cdef struct Bytes:
    uint8_t *p               # malloc'd
    size_t at, n, room       # p[at:n] is filled; room bytes are allocated


cdef struct Entry:
    const uint8_t *name
    const uint8_t *body      # the header, then the payload
    uint64_t name_n, hdr_n, payload_n, seq
    int64_t ts               # ns since 1970
    size_t head              # bytes before the body


cdef class BackupWriter:
    cdef MsgStore store
    cdef uint64_t next_seq, last_seq
    cdef uint64_t damaged        # the store's env.damaged at the beginning
    cdef bint begun, finished
    cdef Bytes raw, out          # entries, and their S2 stream
    cdef uint32_t *table         # for compression
    cdef StoreMsg *taken         # messages looked up, to be copied
    cdef HighwayKey key          # of the block of `taken`
    cdef uint64_t bad_seq        # the message that cannot be read
    cdef int fill(self) noexcept nogil
    cdef int gather(self) noexcept nogil
    cdef int add_taken(self, int n) noexcept nogil
    cdef int compress(self) noexcept nogil


cdef class BackupReader:
    cdef Bytes source, plain     # received bytes, and decompressed ones
    cdef uint64_t max_payload, max_subject, max_msg_size
    # begun: the S2 identifier has been read; ended: feed(b"") was called; complete: the last entry has been read
    cdef bint begun, ended, complete, keep_expired
    cdef int kind
    cdef uint64_t lseq           # the last sequence read
    cdef int decode(self) noexcept nogil
    cdef int need(self, size_t n) noexcept nogil
    cdef int whole(self, Entry *e) noexcept nogil
    cdef int check_entry(self, const Entry *e) noexcept nogil
    cdef int next_entry(self, Entry *e) noexcept nogil
    cdef int store_entry(self, MsgStore store, const Entry *e, int64_t now) noexcept nogil
