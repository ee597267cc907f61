"""Which messages of a store are schedules, and when each is due next (scheduler.go).

A subject has one schedule at most: the message stored last on it, as long as nothing else is stored there but what
schedules themselves produce. What is due is found by time, then sequence. A schedule that is being carried out is *in
flight*: it is not due again until its next time is known. All of it needs the store's lock.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    SCHEDULES_HEADER = 17    # of sched.db: version, entries u64, high sequence u64

cdef enum SchedulesError:
    SCHEDULES_BAD = -1       # not what schedules_encode writes
    SCHEDULES_NO_MEMORY = -2


cdef struct Schedule:
    Schedule *next           # begins as core.chains wants it
    uint32_t hash
    uint32_t slot            # in the heap, from 1; 0: in flight
    uint64_t seq
    int64_t ts               # when it is due, ns since 1970
    int64_t when             # when it is looked at: ts, or later when it could not be carried out then
    uint32_t subject_n
    char subject[1]


cdef struct Schedules:
    Schedule **slots         # begins as core.chains wants it
    uint32_t mask
    uint32_t n
    Schedule **heap          # heap[0] is unused
    uint32_t waiting         # in it
    size_t room
    uint64_t text            # bytes of all subjects


cdef Schedule *schedule_find(Schedules *all, const char *subject, uint32_t n) noexcept nogil
# The schedule of a subject is this message from now on. SCHEDULES_NO_MEMORY: then it has none.
cdef int schedule_add(Schedules *all, uint64_t seq, const char *subject, uint32_t n, int64_t ts) noexcept nogil
# It is due at another time, and not in flight any more.
cdef void schedule_due(Schedules *all, Schedule *sc, int64_t ts) noexcept nogil
# It could not be carried out, and is in flight: look at it again then.
cdef void schedule_again(Schedules *all, Schedule *sc, int64_t when) noexcept nogil
cdef void schedule_drop(Schedules *all, Schedule *sc) noexcept nogil
# The first one that is due, which is in flight then; NULL: none is.
cdef Schedule *schedule_take(Schedules *all, int64_t now) noexcept nogil
cdef int64_t schedules_next(const Schedules *all) noexcept nogil      # when; INT64_MAX: none waits
cdef void schedules_clear(Schedules *all) noexcept nogil

# As sched.db: at most schedules_room() bytes; the bytes written.
cdef size_t schedules_room(const Schedules *all) noexcept nogil
cdef size_t schedules_encode(const Schedules *all, uint64_t high_seq, uint8_t *out) noexcept nogil
# Adds them. 0 or a SchedulesError, after which there are none.
cdef int schedules_decode(Schedules *all, const uint8_t *data, size_t n, uint64_t *high_seq) noexcept nogil
