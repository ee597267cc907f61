"""Messages that JetStream publishes: at once, or from a poller's outboxes.

A JsPoller has two outboxes for answers: what is in `out` is sent after the flush of the streams, what is in `synced`
after their sync. A turn may end before all is sent. The rest is then in `sending`, or still in its SyncBatch.

All of it belongs to one poller's thread, within a batch.
"""
from libc.stddef cimport size_t

from gnats.core.net.pollstate cimport PollState
from gnats.core.routing.route cimport RouteOutcome
from gnats.jetstream.engine.barrier cimport JsPoller, Outbox, StreamBase


# Publish in the stream's account when what the stream stored in this batch has passed its barrier. If the stream
# fails, publish only with `anyway`. Copies its arguments. False when out of memory.
cdef bint publish_later(JsPoller *jp, StreamBase stream, const char *subject, size_t sn, const char *hdr, size_t hn,
                        const char *msg, size_t n, bint anyway) noexcept nogil
# Publish after the flush, whether the stream syncs or not, and whatever becomes of it.
cdef bint publish_flushed(JsPoller *jp, StreamBase stream, const char *subject, size_t sn, const char *reply,
                          size_t rn, const char *msg, size_t n) noexcept nogil
# Publish in the stream's account at once. No lock may be held.
cdef RouteOutcome publish_now(PollState *ps, StreamBase stream, const char *subject, size_t sn, const char *shown,
                              size_t shown_n, const char *reply, size_t rn, const char *hdr, size_t hn,
                              const char *msg, size_t n) noexcept nogil

# -- for the engine --

# Send what is in `sending` or, when it is empty, in `out`. Return whether all of it is sent. While `dirty` still names
# the flushed streams: what is left is counted in the `refs` of its streams.
cdef bint send_flushed(JsPoller *jp) noexcept nogil
# Publish the messages of an outbox until the turn is over; all of them when too much is unsent. Return whether all are
# sent. A message of a failed stream is dropped unless it is `anyway`, or `stored` says that a sync has covered what it
# is about.
cdef bint send_out(JsPoller *jp, Outbox *out, bint stored) noexcept nogil


cdef inline size_t unsent(const JsPoller *jp) noexcept nogil:
    """Return the bytes of answers that wait for nothing but a turn."""
    return jp.sending.n - jp.sending.at + jp.out.n + jp.passing_n
