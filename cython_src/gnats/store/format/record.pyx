"""Records of block files for Python; the functions are inline in record.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

from gnats.store.format.highway cimport HighwayKey, highway_key_of

OVERHEAD = EMPTY_RECORD + HEADERS_N
KINDS = ("message", "erased", "tombstone")


def encode(
    bytes block not None, uint64_t seq, int64_t ts, bytes subject not None, bytes hdr not None, bytes msg not None,
    str kind="message",
) -> bytes:
    """Encode a record of the block named `block` (`<stream>-<index>`); see record.pyi."""
    cdef HighwayKey key
    cdef uint64_t size = record_size(len(subject), len(hdr), len(msg))
    cdef uint64_t bit = TBIT if kind == "tombstone" else EBIT if kind == "erased" else 0
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is not a kind of record")
    if size > MAX_RECORD or len(subject) > MAX_SUBJECT:
        raise ValueError("the record is too large")
    highway_key_of(&key, block, len(block))
    record = PyBytes_FromStringAndSize(NULL, size)
    record_encode(PyBytes_AS_STRING(record), &key, seq | bit, ts, subject, len(subject), hdr, len(hdr), msg, len(msg))
    return record


def decode(bytes block not None, bytes data not None, size_t start=0):
    """Decode the record at `start` of a block: (kind, seq, ts in ns, subject, headers, payload, size)."""
    cdef HighwayKey key
    cdef Record r
    cdef int bad = RECORD_SHORT
    highway_key_of(&key, block, len(block))
    if start <= <size_t> len(data):
        bad = record_decode(PyBytes_AS_STRING(data) + start, len(data) - start, &key, &r)
    if bad == RECORD_SHORT:
        raise EOFError("a part of a record")
    if bad != RECORD_OK:
        raise ValueError("the checksum does not match" if bad == RECORD_HASH_BAD else "the lengths are wrong")
    return (
        KINDS[r.kind], r.seq, r.ts, r.subject[:r.subject_n], r.hdr[:r.hdr_n], r.msg[:r.msg_n], r.size,
    )
