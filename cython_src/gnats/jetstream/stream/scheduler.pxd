"""Carry out schedules that are due (scheduler.go).

A message with Nats-Schedule is stored like any other; the store knows when it is due (gnats.store.index.schedules).
Then a copy of it, or of the last message of another subject, is stored with the target subject, as a message of the
server itself. The stream's lock is held for each schedule from the look-up until the time of its next turn is known.
"""
from gnats.core.net.pollstate cimport PollState


# The function of schedule_timer; owner is the StreamCore. Takes the stream's lock.
cdef void run_msg_scheduling(void *owner, PollState *ps) noexcept nogil
