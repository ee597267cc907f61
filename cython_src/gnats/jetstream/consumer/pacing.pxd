"""Hold a consumer's next message back for its rate limit, or for the original intervals of a replay (consumer.go).

The consumer's lock is held.
"""
from libc.stdint cimport int64_t, uint64_t

from gnats.includes.times cimport duration_of, time_after, time_before
from gnats.includes.units cimport MILLISECOND, SECOND


cdef struct Pace:
    bint replay              # messages are still delivered at their original intervals
    uint64_t replay_end      # that ends behind this stream sequence
    int64_t replay_ts        # time of the message delivered last, ns since 1970; 0: none
    double tokens            # bytes that the rate limit allows now
    int64_t tokens_at        # when `tokens` was updated, monotonic ns


cdef inline int64_t pace_wait(
    Pace *p, int64_t now, double rate, double burst, int64_t ts, bint waited
) noexcept nogil:
    """Return for how many ns to hold back a message that was stored at `ts`. rate: bytes a second, 0: no limit. waited:
    the message has been held back for the replay."""
    cdef int64_t wait = 0, since
    if rate > 0:
        if now > p.tokens_at:
            p.tokens = min(burst, p.tokens + (now - p.tokens_at) * rate / SECOND)
            p.tokens_at = now
        if p.tokens < 0:
            wait = time_after(duration_of(-p.tokens / rate), 1)
    if p.replay and p.replay_ts and not waited:
        since = time_before(ts, p.replay_ts)
        if since > MILLISECOND:
            wait = max(wait, since)
    return wait
