"""Entries of a consumer's Raft group, in nats-server's layouts (consumer.go).

    delivery         u8 DELIVERED_OP, uvarint consumer sequence, uvarint stream sequence, uvarint number of deliveries,
                     varint time in ns: also when the ack wait begins anew
    acknowledgement  u8 ACKS_OP, uvarint consumer sequence, uvarint stream sequence
    skip             u8 SKIP_OP, u64 the next stream sequence, little endian
    reset            u8 RESET_OP, u64 the same, the subject of the answer
    pull request     u8 ADD_REQUEST_OP or REMOVE_REQUEST_OP, its reply subject
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

from gnats.jetstream.consumer.consumerentry cimport ConsumerEntry

cpdef enum:
    DELIVERED_OP = 7
    ACKS_OP = 8
    SKIP_OP = 10
    ADD_REQUEST_OP = 12
    REMOVE_REQUEST_OP = 13
    RESET_OP = 18

cdef enum:
    CONSUMER_OP_ROOM = 48      # bytes of the longest delivery
    RESET_ROOM = 9             # and of a reset, without the subject of its answer


# Write an entry into CONSUMER_OP_ROOM bytes; return the bytes written.
cdef size_t put_delivered(char *to, uint64_t dseq, uint64_t sseq, uint64_t dc, int64_t ts) noexcept nogil
cdef size_t put_acks(char *to, uint64_t dseq, uint64_t sseq) noexcept nogil
cdef size_t put_skip(char *to, uint64_t sseq) noexcept nogil
# Write RESET_ROOM bytes; return their end, where the subject of the answer goes.
cdef char *put_reset(char *to, uint64_t sseq) noexcept nogil
# Decode a delivery, an acknowledgement (without its kind), a skip or a reset; of the last two, `sseq` alone. False: it
# is none of them. Untrusted input.
cdef bint decode_consumer_op(const char *data, size_t n, ConsumerEntry *e) noexcept nogil
