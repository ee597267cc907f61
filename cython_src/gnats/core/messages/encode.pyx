"""Encode a message as MSG or HMSG; see encode.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strlen

from gnats.core.messages.message cimport Message, message_bytes, message_shown
from gnats.core.net.outbound cimport (
    ChunkPool,
    OutMark,
    OutQueue,
    outq_append,
    outq_mark,
    outq_refer,
    outq_rollback,
)
from gnats.core.net.pollstate cimport PollState
from gnats.core.net.shared cimport shared_drop, shared_hold, shared_new
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription, sub_sid
from gnats.includes.atomics cimport store64, unlikely
from gnats.includes.text cimport NUMBER_ROOM, put, put_number, put_text


cdef inline size_t line_room() noexcept nogil:
    """Return the bytes of "[H]MSG subject sid [reply] [header size] size" without subject, sid and reply."""
    return strlen(b"HMSG  ") + strlen(b" ") + 2 * (NUMBER_ROOM + strlen(b" ")) + strlen(b"\r\n")


cdef void encode_msg(const Message *m, Frame *frame, bint bare) noexcept nogil:
    cdef bint header = m.hdr != 0 and not bare
    if m.line != NULL and not bare:
        reuse_line(m, frame, header)
    else:
        write_line(m, frame, bare, header)
        if unlikely(frame.pre == NULL):
            return
    # Not for a short payload that came in parts: its chunks take more memory than its copy, uncounted. Not for one
    # whose header is left out: the header would be kept in memory, uncounted.
    if (
        unlikely(m.block != NULL) and frame.pay_n >= REFER_FROM and frame.pay == m.block.data
        and frame.tail_n == 0
    ):
        frame.block = shared_hold(m.block)


cdef inline void reuse_line(const Message *m, Frame *frame, bint header) noexcept nogil:
    """Overwrite "PUB subject " with "MSG subject " in the read buffer; send the rest of the line as it came in."""
    cdef char *p = m.line
    cdef const Slice *rest = &m.reply if m.reply.p != NULL else (&m.hdr_text if header else &m.n_text)
    if header:
        p[0] = c'H'
        p += 1
    put_text(p, b"MSG")
    frame.pre = m.line
    frame.pre_n = m.subject.p + m.subject.n + 1 - m.line
    frame.mid = NULL
    frame.mid_n = 0
    frame.pay = rest.p
    frame.pay_n = m.data + m.n + strlen(b"\r\n") - rest.p
    frame.hdr = m.hdr if header else 0
    frame.size = m.n
    frame.tail_n = 0


cdef void write_line(const Message *m, Frame *frame, bint bare, bint header) noexcept nogil:
    """Write the line into the poller's scratch memory, which has room for both forms."""
    cdef PollState *ps = m.ps
    cdef Slice shown = message_shown(m)
    cdef size_t room = shown.n + m.reply.n + line_room()
    cdef char *p
    if ps.scratch_len < 2 * room:
        free(ps.scratch)
        ps.scratch = <char *> malloc(2 * room)
        store64(<uint64_t *> &ps.scratch_len, 2 * room if ps.scratch != NULL else 0)
        if ps.scratch == NULL:
            return
    p = ps.scratch + (room if bare else 0)
    frame.pre = p
    if header:
        p[0] = c'H'
        p += 1
    p = put_text(p, b"MSG ")
    p = put(p, shown.p, shown.n)
    p = put_text(p, b" ")
    frame.pre_n = p - frame.pre
    frame.mid = p
    if m.reply.p != NULL:
        p = put(p, m.reply.p, m.reply.n)
        p = put_text(p, b" ")
    frame.pay = m.data
    frame.pay_n = message_bytes(m)
    frame.tail_n = 0 if m.ended else strlen(b"\r\n")
    frame.size = m.n
    frame.hdr = m.hdr if header else 0
    if bare:
        frame.pay += m.hdr
        frame.pay_n -= m.hdr
        frame.size -= m.hdr
        p = put_number(p, frame.size)
    else:
        if header:
            p = put(p, m.hdr_text.p, m.hdr_text.n)
            p = put_text(p, b" ")
        p = put(p, m.n_text.p, m.n_text.n)
    p = put_text(p, b"\r\n")
    frame.mid_n = p - frame.mid


cdef void share_payload(Frame *frame) noexcept nogil:
    cdef size_t n = frame.pay_n + frame.tail_n
    if n != <uint32_t> n:
        return   # more than a chunk counts
    frame.block = shared_new(n)
    if frame.block == NULL:
        return
    memcpy(frame.block.data, frame.pay, frame.pay_n)
    if frame.tail_n:
        put_text(frame.block.data + frame.pay_n, b"\r\n")
    frame.pay = frame.block.data
    frame.pay_n = n
    frame.tail_n = 0


cdef void frames_drop_blocks(Frames *f) noexcept nogil:
    shared_drop(f.full.block)
    shared_drop(f.bare.block)


cdef inline int append_payload(OutQueue *q, ChunkPool *pool, const Frame *f) noexcept nogil:
    if f.block != NULL:
        return outq_refer(q, pool, f.block, f.pay, <uint32_t> f.pay_n)
    if outq_append(q, pool, f.pay, f.pay_n) < 0:
        return -1
    return outq_append(q, pool, b"\r\n", f.tail_n)


cdef int append_frame(OutQueue *q, ChunkPool *pool, const Subscription *s, const Frame *f) noexcept nogil:
    cdef OutMark mark = outq_mark(q)
    if (
        outq_append(q, pool, f.pre, f.pre_n) == 0
        and outq_append(q, pool, sub_sid(s), s.sid_len) == 0
        and outq_append(q, pool, b" ", strlen(b" ")) == 0
        and outq_append(q, pool, f.mid, f.mid_n) == 0
        and append_payload(q, pool, f) == 0
    ):
        return 0
    outq_rollback(q, pool, &mark)
    return -1
