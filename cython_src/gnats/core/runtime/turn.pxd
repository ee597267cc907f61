"""A turn: how long a poller stays with one piece of work (a connection's input, the end of a batch) while others wait.

Reading the clock for every message would cost too much. So the work is counted, and the clock is read when there is
much of it. The first reading begins the turn; what came before is little. Only the poller's thread touches its turn.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t

from gnats.includes.linux cimport stopwatch_ns

cdef enum:
    TURN = 1000000        # ns; the usual length
    # units of work: a node of the trie that a match visits, a subscription that a message is delivered to
    LOOK_AFTER = 512      # units from one look at the clock to the next
    WHOLE_TURN = 16384    # units that are a turn by themselves


cdef struct Turn:
    uint32_t work         # units since the last look at the clock
    uint8_t over
    int64_t length        # ns
    int64_t end           # stopwatch ns; 0 before the first look
    size_t *until         # set to 0 when the turn is over: a parser's (core.protocol.parser); NULL: nobody's


cdef inline void turn_begin(Turn *t, size_t *until, int64_t length) noexcept nogil:
    t.work = 0
    t.over = 0
    t.length = length
    t.end = 0
    t.until = until


cdef inline void turn_end(Turn *t) noexcept nogil:
    t.over = 1
    if t.until != NULL:
        t.until[0] = 0


cdef inline void turn_look(Turn *t) noexcept nogil:
    """Look at the clock: is the turn over?"""
    cdef int64_t now = stopwatch_ns()
    if t.end == 0 and t.work < WHOLE_TURN:
        t.end = now + t.length
    elif now >= t.end:
        turn_end(t)
    t.work = 0


cdef inline void turn_spend(Turn *t, size_t units) noexcept nogil:
    """Count work."""
    t.work += <uint32_t> units
    if t.work >= LOOK_AFTER:
        turn_look(t)
