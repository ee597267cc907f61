"""What a subscriber is sent: a message as MSG or HMSG, made once and shared by all who get it in the same form."""
from libc.stddef cimport size_t
from libc.string cimport strlen

from gnats.core.message cimport Message
from gnats.core.outbound cimport ChunkPool, OutQueue
from gnats.core.sublist cimport Subscription, sub_sid
from gnats.includes.text cimport put, put_text


# The bytes before the sid, between it and the payload, and the payload.
cdef struct Frame:
    const char *pre      # NULL until it is needed
    size_t pre_n
    const char *mid
    size_t mid_n
    const char *pay
    size_t pay_n         # CR LF included, but for the tail
    size_t hdr           # bytes of the payload that are a header
    size_t size          # of header and payload, for the statistics
    size_t tail_n        # 2: CR LF follows that is not in the payload's memory


# The forms of one message.
cdef struct Frames:
    Frame full
    Frame bare           # without the header, for those who have not asked for headers


cdef inline void frames_clear(Frames *f) noexcept nogil:
    f.full.pre = f.bare.pre = NULL


# Make a frame of a message; frame.pre stays NULL without memory. `bare`: without its header. A frame is good until
# the next message is encoded by this poller; the line of the message may be written over.
cdef void encode_msg(const Message *m, Frame *frame, bint bare) noexcept nogil


cdef inline size_t frame_size(const Frame *f, const Subscription *s) noexcept nogil:
    """Bytes on the wire."""
    return f.pre_n + s.sid_len + strlen(b" ") + f.mid_n + f.pay_n + f.tail_n


cdef inline void put_frame(char *p, const Subscription *s, const Frame *f) noexcept nogil:
    p = put_text(put(put(p, f.pre, f.pre_n), sub_sid(s), s.sid_len), b" ")
    if f.mid_n:
        p = put(p, f.mid, f.mid_n)
    p = put(p, f.pay, f.pay_n)
    if f.tail_n:
        put_text(p, b"\r\n")


# Queue it over several chunks, all of it or nothing; -1 when out of memory.
cdef int append_frame(OutQueue *q, ChunkPool *pool, const Subscription *s, const Frame *f) noexcept nogil
