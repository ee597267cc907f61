"""Parse what a session reads, and keep the rest; see sessioninput.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.accounts.subscriber cimport Subscriber, begin_read, end_read
from gnats.core.net.connection cimport READ_ERROR, UNANSWERED, UNFINISHED
from gnats.core.net.pollstate cimport hand_over_first
from gnats.core.protocol.parser cimport (
    PARSE_CLOSED,
    PARSE_OK,
    PARSE_PUNT,
    PARSE_TURN_OVER,
    ParserHandlers,
    parse,
    parser_free,
    parser_init,
    payload_filled,
)
from gnats.core.runtime.turn cimport Turn, turn_look


cdef void input_init(SessionInput *input, uint8_t kind, const ParserHandlers *on, void *owner) noexcept nogil:
    parser_init(&input.parser, kind, on, owner)
    input.kept = NULL


cdef void input_free(SessionInput *input) noexcept nogil:
    parser_free(&input.parser)
    free(input.kept)


cdef void input_feed(Subscriber c, SessionInput *input, size_t direct, char *buf, size_t n) noexcept nogil:
    input.parser.trace = c.trace
    begin_read(c, &input.parser.until)
    if (direct == 0 or payload_filled(&input.parser, direct) == PARSE_OK) and n:
        if pauses(c, parse(&input.parser, buf, n)) and input.parser.consumed < n:
            keep(c, input, buf + input.parser.consumed, n - input.parser.consumed)
    end_read(c)


cdef inline bint pauses(Subscriber c, int parsed) noexcept nogil:
    """Return whether the parser has stopped to go on later; `paused` says when."""
    if parsed == PARSE_PUNT:
        c.paused |= UNANSWERED
    elif parsed == PARSE_TURN_OVER:
        c.paused |= UNFINISHED
    else:
        return False
    return True


cdef void keep(Subscriber c, SessionInput *input, const char *buf, size_t n) noexcept nogil:
    """Keep bytes until the control plane has answered, or until the next turn."""
    input.kept = <char *> malloc(n)
    if input.kept == NULL:
        c.out_of_memory(READ_ERROR)
        return
    memcpy(input.kept, buf, n)
    input.kept_n = n
    input.kept_at = 0


cdef bint input_resume(Subscriber c, SessionInput *input) noexcept nogil:
    cdef char *kept = input.kept
    if kept == NULL:
        return False
    input.parser.trace = c.trace
    begin_read(c, &input.parser.until)
    if pauses(c, parse(&input.parser, kept + input.kept_at, input.kept_n - input.kept_at)):
        input.kept_at += input.parser.consumed
    else:
        input.kept_at = input.kept_n
    if input.kept_at == input.kept_n:
        input.kept = NULL
        free(kept)
    end_read(c)
    return True


cdef void input_drop(SessionInput *input) noexcept nogil:
    free(input.kept)
    input.kept = NULL


cdef int punt(Subscriber c, uint32_t kind, const char *arg, size_t n) noexcept nogil:
    hand_over_first(c.ps)
    if not c.inbox.post_data(kind, <void *> c, &c.source, 0, 0, arg, n):
        c.out_of_memory(READ_ERROR)
        return PARSE_CLOSED
    return PARSE_PUNT


cdef bint turn_is_over(Subscriber c) noexcept nogil:
    cdef Turn *turn = &c.ps.turn
    turn_look(turn)
    return turn.over
