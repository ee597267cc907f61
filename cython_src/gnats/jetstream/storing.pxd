"""Store a message that has been checked (the end of processJetStreamMsg in stream.go).

With it go rollups, message ids, timers, consumers, the copy that is published again, and the acknowledgement. The
stream's lock is held.
"""
from libc.stdlib cimport free

from gnats.jetstream.engine cimport Local
from gnats.jetstream.headers cimport H_SCHEDULER
from gnats.jetstream.inbound cimport ROLLUP_SUBJECT, Checked, Inbound, Taken
from gnats.jetstream.streamcore cimport StreamCore


# Store it; c.outcome is MSG_STORED then. True when others have been purged.
cdef bint store_checked(StreamCore s, Local *local, Inbound *m, Checked *c) noexcept nogil
# Reply that it is stored, with the counter or the batch that it is of.
cdef void acknowledge(StreamCore s, Local *local, const Inbound *m) noexcept nogil


cdef inline void after_take(StreamCore s, const Inbound *m, Taken *t) noexcept nogil:
    """Tell consumers what its storing has removed. The lock is not held any more."""
    if t.purged:
        s.tell_purged(m.subject.p, m.subject.n if t.c.rollup == ROLLUP_SUBJECT else 0)
    if t.c.unscheduled:
        s.tell_purged(m.h.values[H_SCHEDULER].p, m.h.values[H_SCHEDULER].n)
    free(t.subject)
