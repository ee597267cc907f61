"""Notifications of interest: a function is called when the first subscription to a subject comes, and when the last
goes (registerNotification of sublist.go).

A notification is for one literal subject and one queue group or none. Subscriptions with wildcards do not count, nor do
those in other groups. The lock of the sublist guards the table.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

from gnats.core.subjects.sublist cimport InterestSink, Sublist


cdef struct Notification:
    Notification *next     # in its bucket
    uint32_t hash
    # Called with the sublist's lock held to write: it may take only locks below that in docs/locks.md.
    void (*fn)(void *ctx, bint interest) noexcept nogil
    void *ctx
    uint32_t subject_len
    uint32_t queue_len
    uint8_t interest       # there is a subscription
    char data[1]           # subject and queue, adjacent


cdef struct NotificationTable:
    Notification **slots
    uint32_t mask          # number of buckets - 1
    uint32_t n


# The notifications on a sublist: one of its sinks while there are any. All zero at first.
cdef struct Notifications:
    InterestSink sink      # first: the sublist knows only this
    NotificationTable table


# Call fn with True when the first subscription to exactly this subject comes, and with False when the last one goes;
# its `interest` is the present state. NULL when out of memory. Any thread.
cdef Notification *register_notification(
    Sublist sl, Notifications *notifications, const char *subject, size_t n, const char *queue, size_t qn,
    void (*fn)(void *ctx, bint interest) noexcept nogil, void *ctx) noexcept nogil
# Before the notifications' memory goes: free the table. Notifications that are left are never called again.
cdef void notifications_free(Sublist sl, Notifications *notifications) noexcept nogil
# Undo register_notification(), and free the notification: fn is not called any more.
cdef void clear_notification(Sublist sl, Notifications *notifications, Notification *note) noexcept nogil
