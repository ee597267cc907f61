"""Why a message is refused, and how its publisher is told.

A check fills in a Refusal and sends nothing. refuse() and those like it return False, as the check does.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport strlen

from gnats.core.slice cimport Slice
from gnats.jetstream.barrier cimport Local
from gnats.jetstream.puback cimport ERR_STORE_FAILED, ERR_WRONG_LAST_SEQUENCE
from gnats.jetstream.streamcore cimport StreamCore


cdef enum RefusalText:
    TEXT_AS_IT_IS = 0
    TEXT_NUMBER = 1             # `last`
    TEXT_LAST_OF_SUBJECT = 2    # `last`, of a subject
    TEXT_ROLLUP = 3             # of the value of a Nats-Rollup


cdef struct Refusal:
    int err_code             # 0: its publisher is told nothing
    uint8_t form             # a RefusalText
    Slice text               # stands behind what the error says; borrowed
    uint64_t last            # of a duplicate, the sequence of the message that has its id


cdef enum ToldAs:
    TOLD = 0                 # if the stream answers publishers
    TOLD_ALWAYS = 1
    TOLD_IN_FLOW = 2         # always, as of a message in a fast batch


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
    """With a literal."""
    return refuse_with(r, err_code, text, strlen(text))


cdef inline bint refuse_store(Refusal *r, const char *why) noexcept nogil:
    """It cannot be stored: a literal says why."""
    return refuse_text(r, ERR_STORE_FAILED, why)


cdef inline bint refuse_number(Refusal *r, int err_code, uint64_t n) noexcept nogil:
    r.err_code = err_code
    r.form = TEXT_NUMBER
    r.last = n
    return False


cdef inline bint refuse_last(Refusal *r, uint64_t last, bint of_subject) noexcept nogil:
    """The last sequence is not the expected one."""
    refuse_number(r, ERR_WRONG_LAST_SEQUENCE, last)
    if of_subject:
        r.form = TEXT_LAST_OF_SUBJECT
    return False


cdef inline bint refuse_silently(Refusal *r) noexcept nogil:
    """For want of memory, or because the store has failed."""
    r.err_code = 0
    return False


# Tell the publisher, and the trace of the message that the poller has in hand. flow_seq: of TOLD_IN_FLOW.
cdef void tell_refused(StreamCore s, Local *local, const Slice *reply, const Refusal *r, ToldAs told_as,
                       uint64_t flow_seq) noexcept nogil
