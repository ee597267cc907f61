"""The reason why a message is refused, and the error reply to its publisher.

A check fills in a Refusal and sends nothing. refuse() and its variants return False, for the check to return.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport strlen

from gnats.core.messages.msgtrace cimport MsgTrace
from gnats.core.runtime.slice cimport Slice
from gnats.jetstream.engine.barrier cimport JsPoller
from gnats.jetstream.publish.errors cimport ERR_STORE_FAILED, ERR_WRONG_LAST_SEQUENCE
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.store.base cimport STORE_MAX_BYTES, STORE_MAX_MSGS


# The text that follows the error's own.
cdef enum RefusalText:
    TEXT_AS_IT_IS = 0           # Refusal.text
    TEXT_NUMBER = 1             # Refusal.last, in decimal
    TEXT_LAST_OF_SUBJECT = 2    # the same; it is the last sequence of a subject
    TEXT_ROLLUP = 3             # made from Refusal.text, the value of a Nats-Rollup header
    NO_MEMORY = 4               # none: err_code is 0, and the log says why
    STORE_BROKEN = 5            # none: err_code is 0; Refusal.last is the errno with which the store has failed


cdef struct Refusal:
    int err_code             # 0: send no reply
    uint8_t form             # a RefusalText
    Slice text               # borrowed
    uint64_t last            # a number for the text; for a duplicate: the sequence of the message with the same id


cdef enum AnswerMode:
    ANSWER = 0               # reply unless the stream has no_ack
    ANSWER_ALWAYS = 1          # reply in any case
    ANSWER_IN_FLOW = 2         # reply in any case, in the form for a message of a fast batch


cdef inline bint refuse(Refusal *r, int err_code) noexcept nogil:
    r.err_code = err_code
    r.form = TEXT_AS_IT_IS
    r.text.p = NULL
    r.text.n = 0
    return False


cdef inline bint refuse_with(Refusal *r, int err_code, const char *text, size_t n) noexcept nogil:
    r.err_code = err_code
    r.form = TEXT_AS_IT_IS
    r.text.p = <char *> text
    r.text.n = n
    return False


cdef inline bint refuse_text(Refusal *r, int err_code, const char *text) noexcept nogil:
    """Refuse with a literal text."""
    return refuse_with(r, err_code, text, strlen(text))


cdef inline bint refuse_store(Refusal *r, const char *why) noexcept nogil:
    """Refuse because the store would not store the message; `why` is a literal."""
    return refuse_text(r, ERR_STORE_FAILED, why)


cdef inline bint refuse_limit(Refusal *r, int rc) noexcept nogil:
    """Refuse because of a limit of the store: `rc` is STORE_MAX_MSGS, STORE_MAX_BYTES or STORE_MAX_MSGS_PER_SUBJECT."""
    if rc == STORE_MAX_MSGS:
        return refuse_store(r, b"maximum messages exceeded")
    if rc == STORE_MAX_BYTES:
        return refuse_store(r, b"maximum bytes exceeded")
    return refuse_store(r, b"maximum messages per subject exceeded")


cdef inline bint refuse_number(Refusal *r, int err_code, uint64_t n) noexcept nogil:
    r.err_code = err_code
    r.form = TEXT_NUMBER
    r.last = n
    return False


cdef inline bint refuse_last(Refusal *r, uint64_t last, bint of_subject) noexcept nogil:
    """Refuse because the last sequence is not the expected one."""
    refuse_number(r, ERR_WRONG_LAST_SEQUENCE, last)
    if of_subject:
        r.form = TEXT_LAST_OF_SUBJECT
    return False


cdef inline bint refuse_silently(Refusal *r) noexcept nogil:
    """Send no reply: the store has failed, or something else is sent."""
    r.err_code = 0
    r.form = TEXT_AS_IT_IS
    return False


cdef inline bint refuse_without_memory(Refusal *r) noexcept nogil:
    """Send no reply, and log that a message is lost."""
    r.err_code = 0
    r.form = NO_MEMORY
    return False


cdef inline bint refuse_broken(Refusal *r, int error) noexcept nogil:
    """Send no reply: a write has failed with the errno `error`, and whether the message is stored is not known."""
    r.err_code = 0
    r.form = STORE_BROKEN
    r.last = <uint64_t> error
    return False


# Reply to the publisher, and note the error in the message's trace (NULL: not traced). flow_seq: the message's sequence
# in its fast batch, for ANSWER_IN_FLOW.
cdef void answer_refused(StreamCore s, JsPoller *jp, MsgTrace *trace, const Slice *reply, const Refusal *r,
                         AnswerMode mode, uint64_t flow_seq) noexcept nogil
