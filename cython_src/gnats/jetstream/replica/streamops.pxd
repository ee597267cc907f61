"""Entries of a stream's Raft group, in nats-server's layouts (jetstream_cluster.go). Numbers are little endian.

    message          u8 STREAM_MSG_OP, then: u64 seq, i64 ts, u16 n, subject, u16 n, reply, u16 n, header,
                     u32 n, payload, uvarint flags
    compressed one   u8 COMPRESSED_STREAM_MSG_OP, and all after the first byte as one S2 block
    of a batch       u8 BATCH_MSG_OP, of its last message BATCH_COMMIT_MSG_OP, u16 n, id of the batch, uvarint number in
                     the batch, and one of the two above
    other changes    u8 operation, JSON

`seq` is one less than the sequence that the message gets when nothing before it has been refused: nats-server counts
refusals as `clfs`. The subject is the one that was published: each member applies the stream's transform.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t

from gnats.core.runtime.slice cimport Slice
from gnats.jetstream.publish.inbound cimport Inbound

cdef enum StreamOp:
    STREAM_MSG_OP = 4
    PURGE_STREAM_OP = 5
    DELETE_MSG_OP = 6
    COMPRESSED_STREAM_MSG_OP = 14
    DELETE_RANGE_OP = 15
    BATCH_MSG_OP = 16
    BATCH_COMMIT_MSG_OP = 17


cdef enum:
    COMPRESS_OVER = 8192       # bytes of subject, reply, header and payload together


# A message. Slices are borrowed.
cdef struct StreamMsgOp:
    Slice subject, reply, hdr, msg
    uint64_t seq
    int64_t ts                 # ns since 1970
    bint sourced               # it comes from a source or a mirror
    Slice batch                # the id of its batch; n 0: in none
    uint64_t batch_seq         # its number there, from 1
    bint commits               # it is the last of the batch
    char *owned                # decoded bytes that the slices are in, to be freed; NULL: they are in the entry


cdef enum StreamOpError:
    BAD_STREAM_OP = -1
    STREAM_OP_NO_MEMORY = -2


# Return the most bytes that an entry with this message takes.
cdef size_t stream_msg_room(const StreamMsgOp *m) noexcept nogil
# Write an entry with a message of at most 65535 bytes of subject, reply and header each; return the bytes written. A
# large message is compressed if that makes it shorter, and there is memory for it.
cdef size_t put_stream_msg(char *to, const StreamMsgOp *m) noexcept nogil
# Decode an entry with a message, also one of a batch. 0 or a StreamOpError. Untrusted input.
cdef int decode_stream_msg(const char *data, size_t n, StreamMsgOp *m) noexcept nogil
# Decode what an entry says of its batch alone. The message begins at *at, an entry by itself.
cdef bint decode_batch(const char **at, const char *end, StreamMsgOp *m) noexcept nogil
# Make a message on its way into a stream of one that was decoded; its memory is borrowed.
cdef void inbound_of(const StreamMsgOp *op, Inbound *m) noexcept nogil
