"""Scheduled messages that are due (scheduler.go).

A message with Nats-Schedule is stored as any other; its store knows when it is due (gnats.store.schedules). Then a
copy of it, or of the last message of another subject, goes to its target, as a message of the server itself. The
stream's lock is held around each of them, from the look at the schedule to the new time it is due.
"""
from gnats.core.pollstate cimport PollState


# The function of schedule_timer: carry out what is due.
cdef void run_msg_scheduling(void *owner, PollState *ps) noexcept nogil
