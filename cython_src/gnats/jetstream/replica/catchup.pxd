"""Messages for a replica that a snapshot has put behind (runCatchup, processCatchupMsg in nats-server).

The replica asks the leader for a range of sequences. The leader sends its messages to an inbox, as entries whose `seq`
is the sequence, ranges without messages as JSON, and at the end an empty message. The replica answers each message with
an empty one; a text says that it wants no more.

Lock: each has one, which comes before its stream's.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

from gnats.core.internal cimport InternalSubscriber
from gnats.core.net.pollstate cimport PollState
from gnats.includes.pthread cimport pthread_mutex_t
from gnats.jetstream.engine.barrier cimport JsPoller, StreamBase
from gnats.jetstream.engine.engine cimport Engine
from gnats.jetstream.state.streamcore cimport StreamCore

cpdef enum:
    CATCHUP_ENDED = 1       # `a` of an EV_JETSTREAM: no more comes, or is sent
    CATCHUP_FAILED          # the same; `failure` says why


cdef class Catchup(StreamBase):
    cdef pthread_mutex_t lock
    cdef Engine engine
    cdef InternalSubscriber client
    cdef readonly StreamCore stream
    cdef bint ended
    cdef readonly uint64_t messages  # that were sent, or stored
    cdef char[128] why               # it failed; why_n bytes
    cdef size_t why_n

    cdef void end(self, int what, const char *why, size_t n) noexcept nogil


cdef class CatchupSender(Catchup):
    cdef bytes to
    cdef bytes ack_root              # ends with a dot; the size of the message follows
    cdef const char *to_p
    cdef const char *root_p
    cdef size_t to_n, root_n
    cdef uint64_t seq, last          # next to send, and the last one
    cdef uint64_t out_msgs, out_bytes    # sent, and not answered

    cdef void send_some(self, PollState *ps, uint64_t most) noexcept nogil
    cdef bint send_next(self, JsPoller *jp) noexcept nogil
    cdef bint send_msg(self, JsPoller *jp, const char *data, size_t n) noexcept nogil
    cdef bint send_range(self, JsPoller *jp, uint64_t first, uint64_t n) noexcept nogil


cdef class CatchupReceiver(Catchup):
    cdef const char *take(self, JsPoller *jp, const char *data, size_t n) noexcept nogil
