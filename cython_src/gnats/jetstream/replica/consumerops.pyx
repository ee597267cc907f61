"""Entries of a consumer's Raft group; see consumerops.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

from gnats.includes.varint cimport get_uvarint, get_varint, put_uvarint, put_varint
from gnats.jetstream.consumer.consumerentry cimport OP_ACKED, OP_DELIVERED, OP_MOVED, OP_RESET, ConsumerEntry
from gnats.raft.messages cimport get64, put64

OPS = {OP_DELIVERED: "delivered", OP_ACKED: "acks", OP_MOVED: "skip", OP_RESET: "reset"}


cdef size_t put_delivered(char *to, uint64_t dseq, uint64_t sseq, uint64_t dc, int64_t ts) noexcept nogil:
    cdef uint8_t *at = <uint8_t *> to + 1
    to[0] = DELIVERED_OP
    at = put_uvarint(put_uvarint(put_uvarint(at, dseq), sseq), dc)
    return <char *> put_varint(at, ts) - to


cdef size_t put_acks(char *to, uint64_t dseq, uint64_t sseq) noexcept nogil:
    to[0] = ACKS_OP
    return <char *> put_uvarint(put_uvarint(<uint8_t *> to + 1, dseq), sseq) - to


cdef size_t put_skip(char *to, uint64_t sseq) noexcept nogil:
    to[0] = SKIP_OP
    return put64(to + 1, sseq) - to


cdef char *put_reset(char *to, uint64_t sseq) noexcept nogil:
    to[0] = RESET_OP
    return put64(to + 1, sseq)


cdef bint decode_consumer_op(const char *data, size_t n, ConsumerEntry *e) noexcept nogil:
    cdef const uint8_t *at = <const uint8_t *> data + 1
    cdef const uint8_t *end = <const uint8_t *> data + n
    memset(e, 0, sizeof(ConsumerEntry))
    if n == 0:
        return False
    if data[0] == SKIP_OP or data[0] == RESET_OP:
        if n < 9:
            return False
        e.op = OP_MOVED if data[0] == SKIP_OP else OP_RESET
        e.sseq = get64(data + 1)
        return True
    if data[0] == ACKS_OP:
        e.op = OP_ACKED
        return get_uvarint(&at, end, &e.dseq) and get_uvarint(&at, end, &e.sseq)
    e.op = OP_DELIVERED
    return data[0] == DELIVERED_OP and get_uvarint(&at, end, &e.dseq) and get_uvarint(&at, end, &e.sseq) and (
        get_uvarint(&at, end, &e.dc) and get_varint(&at, end, &e.ts))


# -- for tests ---------------------------------------------------------------------------------------------------------

def encode_delivered(uint64_t dseq, uint64_t sseq, uint64_t dc, int64_t ts) -> bytes:
    """Encode a delivery."""
    cdef char[CONSUMER_OP_ROOM] entry
    return entry[:put_delivered(entry, dseq, sseq, dc, ts)]


def encode_acks(uint64_t dseq, uint64_t sseq) -> bytes:
    """Encode an acknowledgement."""
    cdef char[CONSUMER_OP_ROOM] entry
    return entry[:put_acks(entry, dseq, sseq)]


def encode_skip(uint64_t sseq) -> bytes:
    """Encode a skip to the next stream sequence."""
    cdef char[CONSUMER_OP_ROOM] entry
    return entry[:put_skip(entry, sseq)]


def decode(bytes entry not None) -> tuple[str, int, int, int, int] | None:
    """Decode an entry: (what, consumer sequence, stream sequence, deliveries, time); None for one that is invalid."""
    cdef ConsumerEntry e
    if not decode_consumer_op(entry, len(entry), &e):
        return None
    return OPS[e.op], e.dseq, e.sseq, e.dc, e.ts
