"""Watches: call a function when the first subscription to a subject comes, and when the last goes (notifications of
sublist.go).

A watch is for one literal subject and one queue group or none. Subscriptions with wildcards do not count, nor do those
in other groups. The lock of the sublist guards the table.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

from gnats.core.subjects.sublist cimport InterestSink, Sublist


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


# The watches on a sublist: one of its sinks while there are any. All zero at first.
cdef struct Watches:
    InterestSink sink      # first: the sublist knows only this
    WatchTable table


# Call fn with True when the first subscription to exactly this subject comes, and with False when the last one goes;
# the watch's `interest` is the present state. NULL when out of memory. Any thread.
cdef Watch *watch(Sublist sl, Watches *watches, const char *subject, size_t n, const char *queue, size_t qn,
                  void (*fn)(void *ctx, bint interest) noexcept nogil, void *ctx) noexcept nogil
# Before the watches' memory goes: free the table. Watches that are left are never called again.
cdef void watches_free(Sublist sl, Watches *watches) noexcept nogil
# Undo watch(), and free the watch: fn is not called any more.
cdef void unwatch(Sublist sl, Watches *watches, Watch *w) noexcept nogil
