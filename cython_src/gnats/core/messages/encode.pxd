"""Encode a message as MSG or HMSG: once for each form, shared by all subscribers that get that form."""
from libc.stddef cimport size_t
from libc.string cimport strlen

from gnats.core.messages.message cimport Message
from gnats.core.net.outbound cimport ChunkPool, OutQueue, outq_commit, outq_reserve
from gnats.core.net.shared cimport Shared
from gnats.core.subjects.sublist cimport Subscription, sub_sid
from gnats.includes.atomics cimport likely, unlikely
from gnats.includes.text cimport put, put_text


cdef enum:
    # bytes of a payload that queues refer to; a shorter one is copied, which costs less than its chunks and count
    REFER_FROM = 16 * 1024


# The bytes of a message on the wire: pre, the subscriber's sid and a blank, mid, pay, and a CR LF when tail_n is 2.
cdef struct Frame:
    const char *pre      # NULL until encoded
    size_t pre_n
    const char *mid
    size_t mid_n
    const char *pay
    size_t pay_n         # bytes at `pay`; CR LF included when tail_n is 0
    size_t hdr           # bytes at `pay` that are header
    size_t size          # bytes of header and payload, for the statistics
    size_t tail_n        # 2: CR LF must be added, since the memory at `pay` ends without it; else 0
    Shared *block        # a reference to the block that all of `pay` lies in, for queues to refer to; NULL: copy it


# Both forms of one message.
cdef struct Frames:
    Frame full
    Frame bare           # without the header, for clients that have not negotiated headers


cdef inline void frames_begin(Frames *f) noexcept nogil:
    f.full.pre = f.bare.pre = NULL
    f.full.block = f.bare.block = NULL


cdef inline void frames_end(Frames *f) noexcept nogil:
    """Drop the frames' references; frames_begin() may follow."""
    if unlikely(f.full.block != NULL or f.bare.block != NULL):
        frames_drop_blocks(f)


cdef void frames_drop_blocks(Frames *f) noexcept nogil


# Encode a message into `frame`; `bare`: without its header. Without memory frame.pre stays NULL. The frame is good
# until this poller encodes the next message. The "PUB" at m.line may be overwritten with "MSG".
cdef void encode_msg(const Message *m, Frame *frame, bint bare) noexcept nogil
# Put the payload into a block that the queues of further subscribers refer to. Without memory each gets a copy.
cdef void share_payload(Frame *frame) noexcept nogil


cdef inline bint worth_sharing(const Frame *f) noexcept nogil:
    """Ask at a frame's second subscriber: one copy for the first is as cheap as a block, and comes from a pool."""
    return f.pay_n >= REFER_FROM and f.block == NULL


cdef inline size_t frame_size(const Frame *f, const Subscription *s) noexcept nogil:
    """Return the number of bytes on the wire."""
    return f.pre_n + s.sid_len + strlen(b" ") + f.mid_n + f.pay_n + f.tail_n


cdef inline void put_frame(char *p, const Subscription *s, const Frame *f) noexcept nogil:
    """Write a frame for a subscription to `p`, frame_size() bytes."""
    p = put_text(put(put(p, f.pre, f.pre_n), sub_sid(s), s.sid_len), b" ")
    if f.mid_n:
        p = put(p, f.mid, f.mid_n)
    p = put(p, f.pay, f.pay_n)
    if f.tail_n:
        put_text(p, b"\r\n")


# Queue a frame over several chunks, or with a reference to its block; all of it or nothing. -1 when out of memory.
cdef int append_frame(OutQueue *q, ChunkPool *pool, const Subscription *s, const Frame *f) noexcept nogil


cdef inline bint queue_frame(OutQueue *q, ChunkPool *pool, const Subscription *s, const Frame *f) noexcept nogil:
    """Queue all of a frame, or nothing and return False: out of memory."""
    cdef size_t total
    cdef char *p
    if likely(f.block == NULL):
        total = frame_size(f, s)
        p = outq_reserve(q, pool, total)
        if likely(p != NULL):
            put_frame(p, s, f)
            outq_commit(q, total)
            return True
    return append_frame(q, pool, s, f) == 0
