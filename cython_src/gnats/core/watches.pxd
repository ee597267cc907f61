"""Who wants to know when the first subscribes to a subject, and when the last unsubscribes (the notifications of
sublist.go).

A watch is for one literal subject and one queue group, or none: subscriptions with wildcards do not count, nor do those
of another group. The tables belong to sublists, whose lock is held to write.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t


cdef struct Watch:
    Watch *next            # in its bucket
    uint32_t hash
    # Called with the sublist's lock held to write: it may take only what is below it in docs/locks.md.
    void (*fn)(void *ctx, bint interest) noexcept nogil
    void *ctx
    uint32_t subject_len
    uint32_t queue_len
    uint8_t interest       # somebody is subscribed
    char data[1]           # subject, queue


cdef struct WatchTable:
    Watch **slots
    uint32_t mask          # slots less one
    uint32_t n


cdef Watch *watch_new(const char *subject, size_t n, const char *queue, size_t qn,
                      void (*fn)(void *ctx, bint interest) noexcept nogil, void *ctx) noexcept nogil
cdef bint watch_add(WatchTable *t, Watch *w) noexcept nogil      # False when out of memory
cdef void watch_remove(WatchTable *t, Watch *w) noexcept nogil   # and free it
# The first has subscribed to a subject in a group (queue_len 0: in none), or the last has gone.
cdef void watch_notify(WatchTable *t, const char *subject, size_t n, const char *queue, size_t qn,
                       bint interest) noexcept nogil
