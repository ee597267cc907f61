"""A record of a block file: one message, the mark of a deleted sequence, or a tombstone (filestore.go).

    0   u32  length of the record, header and checksum included; the top bit: it has headers
    4   u64  sequence; bit 63: erased, bit 62: a tombstone
    12  i64  when it was stored, in ns since 1970
    20  u16  length of the subject
    22       subject; u32 length of the headers and the headers, if it has them; payload
    -8  u64  HighwayHash-64 of [4:20], subject, headers, payload

All numbers are little endian. An erased record stands for a sequence without a message; its body has no meaning. A
tombstone says that the message of its sequence, in this block or an earlier one, is deleted. An erased record of
sequence 0 says that the message before it is *whole*: no part of an atomic batch, whatever its headers say.
nats-server skips such a record.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from gnats.includes.layout cimport static_assert
from gnats.store.format.highway cimport HighwayKey, HighwayPiece, highway_headed, highway_pieces

cdef enum:
    # offsets in a record
    RECORD_SEQ = 4
    RECORD_TIME = RECORD_SEQ + 8
    RECORD_SUBJECT_N = RECORD_TIME + 8

cdef enum:
    # bytes
    RECORD_HEADER = RECORD_SUBJECT_N + 2
    RECORD_HASH = 8
    HEADERS_N = 4           # the length of the headers, in records that have them
    EMPTY_RECORD = RECORD_HEADER + RECORD_HASH
    MAX_RECORD = 32 * 1024 * 1024
    MAX_SUBJECT = 65535     # the most that its u16 can say; a subject tree holds it (MAX_TREE_SUBJECT)

cdef enum:
    HAS_HEADERS = 0x80000000

cdef extern from * nogil:
    """
    #define GNATS_EBIT ((uint64_t)1 << 63)
    #define GNATS_TBIT ((uint64_t)1 << 62)
    #define GNATS_MAX_SEQ (GNATS_TBIT - 1)
    _Static_assert((GNATS_MAX_SEQ & (GNATS_EBIT | GNATS_TBIT)) == 0, "a sequence has none of the bits");
    """
    const uint64_t EBIT "GNATS_EBIT"
    const uint64_t TBIT "GNATS_TBIT"
    const uint64_t MAX_SEQ "GNATS_MAX_SEQ"    # the greatest sequence that a record can hold, and that a store gives

cdef enum RecordKind:
    MESSAGE = 0
    ERASED = 1          # a sequence without a message
    TOMBSTONE = 2       # the message of this sequence is deleted

cdef enum RecordError:
    RECORD_OK = 0
    RECORD_SHORT = -1   # the record is longer than the data
    RECORD_BAD = -2     # the lengths are impossible
    RECORD_HASH_BAD = -3
    RECORD_HEADERS_BAD = -4     # the length of the headers is too large; no checksum covers it. `size` is still right


cdef struct Record:
    uint64_t seq            # without EBIT and TBIT
    int64_t ts              # ns since 1970
    const char *subject     # the pointers are into the data that was parsed
    const char *hdr
    const char *msg         # the payload, directly after the headers
    uint32_t hdr_n
    uint32_t msg_n
    uint32_t size           # bytes of the whole record
    uint16_t subject_n
    uint8_t kind            # a RecordKind


# Fields of the n >= RECORD_HEADER bytes at `data`; the sequence with EBIT or TBIT.
cdef inline uint64_t record_seq(const char *data) noexcept nogil:
    cdef uint64_t seq
    memcpy(&seq, data + RECORD_SEQ, sizeof(seq))
    return seq


cdef inline uint16_t record_subject_n(const char *data) noexcept nogil:
    cdef uint16_t n
    memcpy(&n, data + RECORD_SUBJECT_N, sizeof(n))
    return n


# Return the size of a record in bytes; one over MAX_RECORD must not be written. The arguments are below 2**32.
cdef inline uint64_t record_size(size_t subject_n, size_t hdr_n, size_t msg_n) noexcept nogil:
    static_assert(RECORD_HEADER == 22)    # nats-server's
    return EMPTY_RECORD + subject_n + msg_n + (HEADERS_N + hdr_n if hdr_n else 0)


# The checksum of the record at `data`: `gap` bytes between the subject and the last `rest` bytes are not part of it.
cdef inline uint64_t record_sum(
    const char *data, const HighwayKey *key, size_t subject_n, size_t gap, size_t rest,
) noexcept nogil:
    cdef HighwayPiece pieces[3]
    if gap == 0:
        return highway_headed(key, data + RECORD_SEQ, data + RECORD_HEADER, subject_n + rest)
    pieces[0].at = data + RECORD_SEQ
    pieces[0].n = RECORD_SUBJECT_N - RECORD_SEQ
    pieces[1].at = data + RECORD_HEADER
    pieces[1].n = subject_n
    pieces[2].at = data + RECORD_HEADER + subject_n + gap
    pieces[2].n = rest
    return highway_pieces(key, pieces, 3)


# Write a record without its checksum to `out`, which has record_size() bytes; return the place of the checksum.
# `seq` includes EBIT or TBIT; no pointer is NULL.
cdef inline char *record_put(
    char *out, uint64_t seq, int64_t ts, const char *subject, size_t subject_n,
    const char *hdr, size_t hdr_n, const char *msg, size_t msg_n,
) noexcept nogil:
    cdef uint32_t size = <uint32_t> record_size(subject_n, hdr_n, msg_n)
    cdef uint32_t u32 = size | HAS_HEADERS if hdr_n else size
    cdef uint16_t u16 = <uint16_t> subject_n
    memcpy(out, &u32, 4)
    memcpy(out + RECORD_SEQ, &seq, sizeof(seq))
    memcpy(out + RECORD_TIME, &ts, sizeof(ts))
    memcpy(out + RECORD_SUBJECT_N, &u16, sizeof(u16))
    out += RECORD_HEADER
    memcpy(out, subject, subject_n)
    out += subject_n
    if hdr_n:
        u32 = <uint32_t> hdr_n
        memcpy(out, &u32, HEADERS_N)
        memcpy(out + HEADERS_N, hdr, hdr_n)
        out += HEADERS_N + hdr_n
    memcpy(out, msg, msg_n)
    return out + msg_n


# The same with the checksum, which is returned.
cdef inline uint64_t record_encode(
    char *out, const HighwayKey *key, uint64_t seq, int64_t ts, const char *subject, size_t subject_n,
    const char *hdr, size_t hdr_n, const char *msg, size_t msg_n,
) noexcept nogil:
    cdef char *end = record_put(out, seq, ts, subject, subject_n, hdr, hdr_n, msg, msg_n)
    cdef uint64_t sum64 = record_sum(out, key, subject_n, HEADERS_N if hdr_n else 0, hdr_n + msg_n)
    memcpy(end, &sum64, 8)
    return sum64


# Parse the record at `data`, without its checksum: for bytes that were checked before. RECORD_OK or a RecordError.
cdef inline int record_parse(const char *data, size_t n, Record *r) noexcept nogil:
    cdef uint32_t size, hdr_n = 0
    cdef uint64_t seq
    cdef size_t body
    cdef int bad = RECORD_OK
    if n < RECORD_HEADER:
        return RECORD_SHORT
    memcpy(&size, data, 4)
    r.subject_n = record_subject_n(data)
    seq = record_seq(data)
    memcpy(&r.ts, data + RECORD_TIME, sizeof(r.ts))
    r.size = size & 0x7fffffff
    if r.size < EMPTY_RECORD or r.size > MAX_RECORD:
        return RECORD_BAD
    body = r.size - EMPTY_RECORD
    if r.subject_n + (<size_t> HEADERS_N if size & HAS_HEADERS else 0) > body:
        return RECORD_BAD
    if n < r.size:
        return RECORD_SHORT
    body -= r.subject_n
    r.subject = data + RECORD_HEADER
    r.hdr = r.subject + r.subject_n
    r.kind = MESSAGE
    if seq & (EBIT | TBIT):
        r.kind = TOMBSTONE if seq & TBIT else ERASED
    elif seq == 0:
        r.kind = ERASED
    r.seq = seq & ~(EBIT | TBIT)
    if size & HAS_HEADERS:
        body -= HEADERS_N
        memcpy(&hdr_n, r.hdr, HEADERS_N)
        r.hdr += HEADERS_N
        if hdr_n > body:
            # the body of an erased record has no meaning, so its lengths may be wrong
            bad = RECORD_HEADERS_BAD if r.kind == MESSAGE else RECORD_OK
            hdr_n = 0
    r.hdr_n = hdr_n
    r.msg = r.hdr + hdr_n
    r.msg_n = <uint32_t> (body - hdr_n)
    return bad


# Return the checksum stored in the last 8 bytes of a parsed record.
cdef inline uint64_t record_stored_hash(const char *data, const Record *r) noexcept nogil:
    cdef uint64_t sum64
    memcpy(&sum64, data + r.size - RECORD_HASH, 8)
    return sum64


# Return the checksum that a parsed record should have.
cdef inline uint64_t record_hash(const char *data, const HighwayKey *key, const Record *r) noexcept nogil:
    return record_sum(data, key, r.subject_n, <size_t> (r.hdr - r.subject) - r.subject_n, r.hdr_n + r.msg_n)


# Parse and check the record at the beginning of n untrusted bytes. RECORD_OK or a RecordError.
cdef inline int record_decode(const char *data, size_t n, const HighwayKey *key, Record *r) noexcept nogil:
    cdef int bad = record_parse(data, n, r)
    if bad == RECORD_SHORT or bad == RECORD_BAD:
        return bad
    return bad if record_hash(data, key, r) == record_stored_hash(data, r) else RECORD_HASH_BAD


# Write a tombstone (`bit` TBIT) or an erased record (EBIT) of EMPTY_RECORD bytes; return its checksum.
cdef inline uint64_t record_encode_mark(
    char *out, const HighwayKey *key, uint64_t seq, int64_t ts, uint64_t bit,
) noexcept nogil:
    return record_encode(out, key, seq | bit, ts, out, 0, out, 0, out, 0)


# Return whether a record says that the message before it is whole.
cdef inline bint is_whole_mark(const Record *r) noexcept nogil:
    return r.kind == ERASED and r.seq == 0
