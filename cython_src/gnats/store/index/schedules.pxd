"""The schedules of a store, by subject and by the time that each is due next (scheduler.go).

A subject has at most one schedule: the last message stored on it, apart from messages that schedules produce. Due
schedules come in the order of their times, then of their sequences. A schedule that is being carried out is *in
flight*: it is not due again before its next time is set. The caller of any function here holds the store's lock.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    SCHEDULES_HEADER = 17    # bytes before the entries of sched.db: version, entries u64, high sequence u64

cdef enum SchedulesError:
    SCHEDULES_BAD = -1       # not an encoding of schedules
    SCHEDULES_NO_MEMORY = -2


cdef struct Schedule:
    Schedule *next           # next and hash: the layout that core.runtime.hash_table needs
    uint32_t hash
    uint32_t slot            # index in the heap, from 1; 0: in flight
    uint64_t seq             # of its message
    int64_t ts               # when it is due, ns since 1970
    int64_t when             # when to carry it out: ts, or later after a failed attempt
    uint32_t subject_n
    char subject[1]


cdef struct Schedules:
    Schedule **slots         # hash table by subject; slots, mask, n: the layout that core.runtime.hash_table needs
    uint32_t mask
    uint32_t n               # schedules
    Schedule **heap          # ordered by `when`, then `seq`; heap[0] is unused
    uint32_t waiting         # schedules in the heap
    size_t room              # of the heap
    uint64_t text            # bytes of all subjects


cdef Schedule *schedule_find(Schedules *all, const char *subject, uint32_t n) noexcept nogil    # NULL: none
# Make the message `seq` the schedule of its subject. 0 or SCHEDULES_NO_MEMORY: then the subject has no schedule.
cdef int schedule_add(Schedules *all, uint64_t seq, const char *subject, uint32_t n, int64_t ts) noexcept nogil
# Set the time at which a schedule is due; it is not in flight any more.
cdef void schedule_due(Schedules *all, Schedule *sc, int64_t ts) noexcept nogil
# Put a schedule in flight back that could not be carried out, to try again at `when`.
cdef void schedule_again(Schedules *all, Schedule *sc, int64_t when) noexcept nogil
# Remove and free a schedule.
cdef void schedule_drop(Schedules *all, Schedule *sc) noexcept nogil
# Take the first schedule that is due at `now`; it is in flight then. NULL: none is due.
cdef Schedule *schedule_take(Schedules *all, int64_t now) noexcept nogil
# Return when the next schedule is to be carried out; INT64_MAX: none waits.
cdef int64_t schedules_next(const Schedules *all) noexcept nogil
cdef void schedules_clear(Schedules *all) noexcept nogil

# Encode sched.db: at most schedules_room() bytes. Return the bytes written.
cdef size_t schedules_room(const Schedules *all) noexcept nogil
cdef size_t schedules_encode(const Schedules *all, uint64_t high_seq, uint8_t *out) noexcept nogil
# Add decoded schedules. 0 or a SchedulesError; then there are no schedules at all.
cdef int schedules_decode(Schedules *all, const uint8_t *data, size_t n, uint64_t *high_seq) noexcept nogil
