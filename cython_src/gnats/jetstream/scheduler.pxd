"""Scheduled messages (scheduler.go, and their checks in stream.go and jetstream_batching.go).

A message with Nats-Schedule is stored as any other; its store knows when it is due (gnats.store.schedules). Then a
copy of it, or of the last message of another subject, goes to its target, as a message of the server itself. The
stream's lock is held around each of them, from the look at the schedule to the new time it is due.
"""
from libc.stdint cimport int64_t

from gnats.core.pollstate cimport PollState
from gnats.jetstream.engine cimport Local
from gnats.jetstream.ingest cimport Inbound
from gnats.jetstream.streamcore cimport StreamCore

# The last message on the subject whose schedule a message ends, when it is in the same batch.
cdef enum Earlier:
    NONE_EARLIER = 0
    SCHEDULE_EARLIER = 1
    OTHER_EARLIER = 2


# What a message's header says of schedules, of its own or one to end; a schedule gets the rollup that it has to have.
# False: it is refused, and told so. The lock is held.
cdef bint check_schedule(StreamCore s, Local *local, Inbound *m, Earlier earlier) noexcept nogil
# Have schedule_timer go off when the next schedule is due; the lock is held.
cdef void arm_schedules(StreamCore s) noexcept nogil
# The function of that timer: carry out what is due.
cdef void run_msg_scheduling(void *owner, PollState *ps) noexcept nogil
