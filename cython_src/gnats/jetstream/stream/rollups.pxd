"""Rollups: a message that replaces those before it, of its subject or of all (stream.go).

A purge may need memory, or a file that cannot be opened now. The rollup then waits for two seconds, and the messages
that it replaces stay. `StreamCore.rollups_from` is the sequence of the first message whose rollup waits. The timer of
expiry does that rollup, and those of all messages behind it. A restart forgets rollups that wait.

The stream's lock is held, unless a function says otherwise.
"""
from libc.stdint cimport INT64_MAX, int64_t, uint64_t

from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.clock cimport realtime_ns
from gnats.jetstream.state.entry cimport StreamEntry
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.store.base cimport retry_after


# Purge the messages that an entry's message, stored as `seq`, replaces, and the schedule that it ends. Set rollups_from
# when that has to wait.
cdef void roll_up(StreamCore s, const StreamEntry *e, uint64_t seq) noexcept nogil
# Do the rollups that wait. No lock is held.
cdef void finish_rollups(StreamCore s, PollState *ps) noexcept nogil


cdef inline int64_t next_rollup(StreamCore s) noexcept nogil:
    """Return when to call finish_rollups(), ns since 1970; INT64_MAX: no rollup waits."""
    return retry_after(realtime_ns()) if s.rollups_from else INT64_MAX
