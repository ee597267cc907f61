"""Watches: call a function when the first subscription to a subject comes, and when the last goes (notifications of
sublist.go).

A watch is for one literal subject and one queue group or none. Subscriptions with wildcards do not count, nor do those
in other groups. A sublist owns its table; its lock is held to write.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t


cdef struct Watch:
    Watch *next            # in its bucket
    uint32_t hash
    # Called with the sublist's lock held to write: it may take only locks below that in docs/locks.md.
    void (*fn)(void *ctx, bint interest) noexcept nogil
    void *ctx
    uint32_t subject_len
    uint32_t queue_len
    uint8_t interest       # there is a subscription
    char data[1]           # subject and queue, adjacent


cdef struct WatchTable:
    Watch **slots
    uint32_t mask          # number of buckets - 1
    uint32_t n


# Make a watch; NULL when out of memory.
cdef Watch *watch_new(const char *subject, size_t n, const char *queue, size_t qn,
                      void (*fn)(void *ctx, bint interest) noexcept nogil, void *ctx) noexcept nogil
cdef bint watch_add(WatchTable *t, Watch *w) noexcept nogil      # False when out of memory
cdef void watch_remove(WatchTable *t, Watch *w) noexcept nogil   # frees it
# Call the watches of a subject in a group (queue_len 0: in none): its first subscription has come, or its last has
# gone.
cdef void watch_notify(WatchTable *t, const char *subject, size_t n, const char *queue, size_t qn,
                       bint interest) noexcept nogil
