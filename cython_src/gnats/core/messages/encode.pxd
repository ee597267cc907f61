"""Encode a message in the forms that its subscribers get: once for each form, shared by all that get it.

A frame is four pieces: `pre`, `part`, `mid` and `pay`. Only `part` differs between the destinations of one form: it is
the sid for a client; for a link it is all of the line but the sizes (core.routing.targets). encode.pyx says
where a new form is added.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

from gnats.core.messages.message cimport Message
from gnats.core.net.outbound cimport ChunkPool, OutQueue, outq_commit, outq_reserve
from gnats.core.net.shared cimport Shared
from gnats.core.runtime.slice cimport Slice
from gnats.includes.atomics cimport likely, unlikely
from gnats.includes.text cimport put, put_text


cdef enum:
    # bytes of a payload that queues refer to; a shorter one is copied, which costs less than its chunks and count
    REFER_FROM = 16 * 1024

# The form that a destination wants: Subscriber.form. Those with a header have odd numbers, and follow the same without.
cdef enum Form:
    FORM_MSG      # MSG, without the message's header: for clients that have not negotiated headers
    FORM_HMSG     # HMSG; MSG when the message has no header
    FORM_RMSG     # RMSG or LMSG, without the message's header: for servers that do not support headers
    FORM_RHMSG    # HMSG; RMSG or LMSG when the message has no header
    FORMS


# The bytes of a message on the wire: pre, part, mid, pay, and a CR LF when tail_n is 2.
cdef struct Frame:
    const char *pre      # NULL until encoded
    size_t pre_n
    Slice part           # of the destination at hand; its delivery sets it
    const char *mid
    size_t mid_n
    const char *pay
    size_t pay_n         # bytes at `pay`; CR LF included when tail_n is 0
    size_t hdr           # bytes at `pay` that are header
    size_t size          # bytes of header and payload, for the statistics
    size_t tail_n        # 2: CR LF must be added, since the memory at `pay` ends without it; else 0
    Shared *block        # the block that all of `pay` lies in, for queues to refer to; NULL: copy it


# A message in all forms.
cdef struct Frames:
    Frame at[FORMS]
    uint8_t held         # bit i: at[i].block is a reference of ours
    # NULL, or the frames of another message, of which this one differs in its subject only: these take over the rest
    Frames *like
    const Message *like_message


cdef inline void frames_begin(Frames *f) noexcept nogil:
    cdef uint32_t i
    for i in range(FORMS):
        f.at[i].pre = NULL
    f.held = 0
    f.like = NULL


cdef inline void frames_begin_like(Frames *f, Frames *like, const Message *m) noexcept nogil:
    """Begin the frames of a message that is `m`, whose frames `like` are, under another subject."""
    frames_begin(f)
    f.like = like
    f.like_message = m


cdef inline void frames_end(Frames *f) noexcept nogil:
    """Drop the frames' references; frames_begin() may follow."""
    if unlikely(f.held != 0):
        frames_drop_blocks(f)


cdef void frames_drop_blocks(Frames *f) noexcept nogil


# Encode a message into one of its frames, all but `part`. False: no memory. The frame is good until this poller encodes
# the next message: one in frames like others leaves those alone. The "PUB" at m.line may be overwritten with "MSG".
cdef bint encode_msg(const Message *m, Frames *frames, uint32_t form) noexcept nogil
# Put the payload into a block that the queues of further destinations refer to. Without memory each gets a copy.
cdef void share_payload(Frames *frames, Frame *f) noexcept nogil


cdef inline bint worth_sharing(const Frame *f) noexcept nogil:
    """Return whether to share the payload. Ask at its second destination: one pooled copy is as cheap."""
    return f.pay_n >= REFER_FROM and f.block == NULL


cdef inline Frame *frame_for(const Message *m, Frames *frames, uint32_t form) noexcept nogil:
    """Return the frame for one more destination, which has to set its `part`; NULL when out of memory."""
    cdef Frame *f = frames.at
    if m.hdr != 0 or form > FORM_HMSG:   # without a header, HMSG is MSG
        f = &frames.at[form]
    if f.pre == NULL:
        if unlikely(not encode_msg(m, frames, <uint32_t> (f - frames.at))):
            return NULL
    elif unlikely(worth_sharing(f)):
        share_payload(frames, f)
    return f


cdef inline void frame_address(Frame *f, const char *part, size_t n) noexcept nogil:
    """Set the part that is the destination's own."""
    f.part.p = <char *> part
    f.part.n = n


cdef inline size_t frame_size(const Frame *f) noexcept nogil:
    """Return the number of bytes on the wire."""
    return f.pre_n + f.part.n + f.mid_n + f.pay_n + f.tail_n


cdef inline void put_frame(char *p, const Frame *f) noexcept nogil:
    """Write a frame to `p`, frame_size() bytes."""
    p = put(put(p, f.pre, f.pre_n), f.part.p, f.part.n)
    if f.mid_n:
        p = put(p, f.mid, f.mid_n)
    p = put(p, f.pay, f.pay_n)
    if f.tail_n:
        put_text(p, b"\r\n")


# Queue a frame over several chunks, or with a reference to its block; all of it or nothing. -1 when out of memory.
cdef int append_frame(OutQueue *q, ChunkPool *pool, const Frame *f) noexcept nogil


cdef inline bint queue_frame(OutQueue *q, ChunkPool *pool, const Frame *f) noexcept nogil:
    """Queue all of a frame, or nothing and return False: out of memory."""
    cdef size_t total
    cdef char *p
    if likely(f.block == NULL):
        total = frame_size(f)
        p = outq_reserve(q, pool, total)
        if likely(p != NULL):
            put_frame(p, f)
            outq_commit(q, total)
            return True
    return append_frame(q, pool, f) == 0
