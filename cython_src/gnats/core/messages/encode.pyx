"""Encode a message in the forms that its subscribers get; see encode.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strlen

from gnats.core.messages.message cimport Message, message_bytes, message_shown
from gnats.core.messages.reserved cimport plain_reply
from gnats.core.net.outbound cimport (
    ChunkPool,
    OutMark,
    OutQueue,
    outq_append,
    outq_mark,
    outq_refer,
    outq_rollback,
)
from gnats.core.net.pollstate cimport Scratch
from gnats.core.net.shared cimport shared_drop, shared_hold, shared_new
from gnats.core.runtime.slice cimport Slice
from gnats.includes.atomics cimport likely, store64, unlikely
from gnats.includes.layout cimport static_assert
from gnats.includes.text cimport NUMBER_ROOM, put, put_number, put_text


# Frames.held has a bit for each form.
static_assert(FORMS <= 8 * sizeof(uint8_t))


# A new form has a number in Form, and a place in each of these functions: put_pre and put_mid write its line before and
# behind the part that each destination has of its own, line_room() has room for both, encode_msg says whether a
# line that came in can be sent on as it is. The delivery to such a connection gives the part to frame_address().

cdef inline size_t line_room(const Message *m, const Slice *shown) noexcept nogil:
    """Return the bytes of the longest line of any form, without `part`."""
    return (
        strlen(b"HMSG ") + shown.n + strlen(b"  ") + m.reply.n + 2 * (strlen(b" ") + NUMBER_ROOM) + strlen(b"\r\n"))


cdef inline char *put_pre(char *p, uint32_t form, const Slice *shown, bint header) noexcept nogil:
    """Write the line up to `part`."""
    if form >= FORM_RMSG:
        return p   # the verb depends on the link: it is in `part`
    if header:
        p[0] = c'H'
        p += 1
    return put_text(put(put_text(p, b"MSG "), shown.p, shown.n), b" ")


cdef inline char *put_mid(char *p, uint32_t form, const Message *m, size_t size, bint header) noexcept nogil:
    """Write the line from `part` to its end, for `size` bytes of header and payload."""
    cdef Slice reply
    p = put_text(p, b" ")
    if m.reply.p != NULL and form < FORM_RMSG:
        reply = plain_reply(&m.reply)
        p = put_text(put(p, reply.p, reply.n), b" ")
    if header:
        p = put_text(put(p, m.hdr_text.p, m.hdr_text.n), b" ")
    p = put(p, m.n_text.p, m.n_text.n) if size == m.n else put_number(p, size)
    return put_text(p, b"\r\n")


cdef bint encode_msg(const Message *m, Frames *frames, uint32_t form) noexcept nogil:
    cdef bint header = m.hdr != 0
    if likely(m.line != NULL and form == header and frames.like == NULL):   # FORM_MSG, FORM_HMSG
        reuse_line(m, &frames.at[form], header)
        return True
    if unlikely(frames.like != NULL):
        return encode_like(m, frames, form)
    return encode_line(m, frames, form)


cdef bint encode_line(const Message *m, Frames *frames, uint32_t form) noexcept nogil:
    cdef Frame *frame = &frames.at[form]
    if not write_line(m, frame, form):
        return False
    frame.block = NULL
    # Not for a short payload that came in parts: its chunks take more memory than its copy, uncounted. Not for one
    # whose header is left out: the header would be kept in memory, uncounted.
    if (
        unlikely(m.block != NULL) and frame.pay_n >= REFER_FROM and frame.pay == m.block.data
        and frame.tail_n == 0
    ):
        frame.block = shared_hold(m.block)
        frames.held |= <uint8_t> (1 << form)
    return True


cdef inline void reuse_line(const Message *m, Frame *frame, bint header) noexcept nogil:
    """Overwrite "PUB subject " with "MSG subject " in the read buffer; send the rest of the line as it came in."""
    cdef char *p = m.line
    cdef const Slice *rest = &m.reply if m.reply.p != NULL else (&m.hdr_text if header else &m.n_text)
    if header:
        p[0] = c'H'
        p += 1
    put_text(p, b"MSG")
    frame.pre = m.line
    frame.pre_n = m.subject.p + m.subject.n + strlen(b" ") - m.line
    frame.mid = NULL
    frame.mid_n = 0
    frame.pay = rest.p - strlen(b" ")   # single blanks separate the words: the one before this follows `part`
    frame.pay_n = m.data + m.n + strlen(b"\r\n") - frame.pay
    frame.hdr = m.hdr
    frame.size = m.n
    frame.tail_n = 0
    frame.block = NULL


cdef bint encode_like(const Message *m, Frames *frames, uint32_t form) noexcept nogil:
    """Encode another message in its frames, and write a line of its own before what those have of the rest."""
    cdef Frame *frame = &frames.at[form]
    cdef const Frame *like = frame_for(frames.like_message, frames.like, form)
    cdef Slice shown = message_shown(m)
    cdef char *p = NULL
    if like != NULL:
        p = scratch_room(&m.ps.scratch_like, line_room(m, &shown))
    if p == NULL:
        return False
    frame[0] = like[0]   # and its block, which lives as long as `frames.like`
    frame.pre = p
    frame.pre_n = put_pre(p, form, &shown, with_header(m, form)) - p
    return True


cdef inline bint with_header(const Message *m, uint32_t form) noexcept nogil:
    return form & 1 and m.hdr != 0


cdef char *scratch_room(Scratch *s, size_t n) noexcept nogil:
    """Return memory for n bytes, instead of what was there; NULL when out of memory."""
    if s.n < n:
        free(s.p)
        s.p = <char *> malloc(n)
        store64(<uint64_t *> &s.n, n if s.p != NULL else 0)
    return s.p


cdef bint write_line(const Message *m, Frame *frame, uint32_t form) noexcept nogil:
    """Write the line into the poller's scratch memory, which has room for all forms. False when out of memory."""
    cdef bint header = with_header(m, form)
    cdef size_t left_out = 0 if header else m.hdr   # bytes of the message that are not sent
    cdef Slice shown = message_shown(m)
    cdef size_t room = line_room(m, &shown)
    cdef char *p = scratch_room(&m.ps.scratch, FORMS * room)
    if p == NULL:
        return False
    p += form * room
    frame.pre = p
    frame.mid = put_pre(p, form, &shown, header)
    frame.pre_n = frame.mid - frame.pre
    frame.size = m.n - left_out
    frame.mid_n = put_mid(<char *> frame.mid, form, m, frame.size, header) - frame.mid
    frame.pay = m.data + left_out
    frame.pay_n = message_bytes(m) - left_out
    frame.tail_n = 0 if m.ended else strlen(b"\r\n")
    frame.hdr = m.hdr if header else 0
    return True


cdef void share_payload(Frames *frames, Frame *frame) noexcept nogil:
    cdef size_t n = frame.pay_n + frame.tail_n
    if n != <uint32_t> n:
        return   # more than a chunk counts
    frame.block = shared_new(n)
    if frame.block == NULL:
        return
    frames.held |= <uint8_t> (1 << (frame - frames.at))
    memcpy(frame.block.data, frame.pay, frame.pay_n)
    if frame.tail_n:
        put_text(frame.block.data + frame.pay_n, b"\r\n")
    frame.pay = frame.block.data
    frame.pay_n = n
    frame.tail_n = 0


cdef void frames_drop_blocks(Frames *f) noexcept nogil:
    cdef uint32_t i
    for i in range(FORMS):
        if f.held >> i & 1:
            shared_drop(f.at[i].block)


cdef inline int append_payload(OutQueue *q, ChunkPool *pool, const Frame *f) noexcept nogil:
    if f.block != NULL:
        return outq_refer(q, pool, f.block, f.pay, <uint32_t> f.pay_n)
    if outq_append(q, pool, f.pay, f.pay_n) < 0:
        return -1
    return outq_append(q, pool, b"\r\n", f.tail_n)


cdef int append_frame(OutQueue *q, ChunkPool *pool, const Frame *f) noexcept nogil:
    cdef OutMark mark = outq_mark(q)
    if (
        outq_append(q, pool, f.pre, f.pre_n) == 0
        and outq_append(q, pool, f.part.p, f.part.n) == 0
        and outq_append(q, pool, f.mid, f.mid_n) == 0
        and append_payload(q, pool, f) == 0
    ):
        return 0
    outq_rollback(q, pool, &mark)
    return -1
