"""What a session reads: bytes are parsed at once, or kept while the control plane or other connections have their turn.

The owner calls all functions.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.protocol.parser cimport PARSE_CLOSED, PARSE_OK, Parser, ParserHandlers
from gnats.includes.atomics cimport load8


cdef struct SessionInput:
    Parser parser
    # bytes read behind a punted verb, or behind the end of a turn: kept[kept_at:kept_n] is still to be parsed
    char *kept
    size_t kept_n, kept_at


cdef void input_init(SessionInput *input, uint8_t kind, const ParserHandlers *on, void *owner) noexcept nogil
cdef void input_free(SessionInput *input) noexcept nogil
# Handle what was read: `direct` bytes where parser_wants() said, then n bytes in buf. Without memory, close.
cdef void input_feed(Subscriber c, SessionInput *input, size_t direct, char *buf, size_t n) noexcept nogil
# Parse the bytes that were kept, up to a punted verb or the end of the turn. Return whether there were any.
cdef bint input_resume(Subscriber c, SessionInput *input) noexcept nogil
# Forget the bytes that were kept.
cdef void input_drop(SessionInput *input) noexcept nogil

# -- for the handlers of a session's parser --
# Return a handler's result: the parser stops once the connection is closing.
cdef inline int go_on(Subscriber c) noexcept nogil:
    return PARSE_CLOSED if load8(&c.closing) else PARSE_OK
# Post a verb to the control plane, which resumes the session. Without memory for the event, close.
cdef int punt(Subscriber c, uint32_t kind, const char *arg, size_t n) noexcept nogil
# Return whether the turn is over.
cdef bint turn_is_over(Subscriber c) noexcept nogil
