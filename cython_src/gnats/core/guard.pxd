"""What a connection may do: its permissions, and the replies they allow (the permissions half of client.go).

The owner installs permissions and asks about what its client sends. What the client is sent is checked by whoever
delivers it, with the verdicts of that poller: it reads the pointer without a lock, and `keep` holds on to permissions
that were replaced until no poller can be looking at them (core.quiesce).
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t

from gnats.core.connection cimport Connection
from gnats.core.permissions cimport Permissions
from gnats.core.pollstate cimport PollState
from gnats.core.replies cimport ReplyTable
from gnats.core.slice cimport Slice
from gnats.core.sublist cimport Subscription
from gnats.core.subtable cimport SubTable

cdef enum:
    # what whoever delivers has to look at; bits of Guarded.checks
    CHECK_DELIVERIES = 1    # some subscription matches more than may be delivered
    NOTE_REPLIES = 2        # the client may publish to the replies of what it is sent


cdef class Guarded(Connection):
    cdef void *permissions           # borrowed Permissions, NULL: everything is allowed; atomic, the owner writes it
    cdef uint8_t checks              # atomic, the owner writes it
    # under lock
    cdef void *staged_permissions    # what install_permissions is to take
    cdef uint64_t replaced           # grace number of the last change
    cdef ReplyTable *replies

    cdef SubTable subs               # under lock for other threads

    cdef void unsubscribe(self, Subscription *s) noexcept nogil

    cdef int stage_permissions(self, Permissions permissions) except -1
    # owner
    cdef void apply_permissions(self) noexcept nogil
    cdef void install_permissions(self) noexcept nogil
    cdef void filter_deliveries(self, bint needed) noexcept nogil
    cdef bint may_publish(self, const Slice *subject) noexcept nogil
    cdef bint may_subscribe(self, const char *subject, size_t n, const char *queue, size_t qn) noexcept nogil
    cdef void refuse_publish(self, const Slice *subject) noexcept nogil
    cdef void refuse_subscription(self, const Slice *subject, const Slice *queue, const Slice *sid) noexcept nogil
    cdef void report_removed(self, const Subscription *s) noexcept nogil
    # whoever delivers, of the poller `ps`; asked only when `checks` says so
    cdef bint delivery_denied(self, PollState *ps, const Slice *subject, const Subscription *s) noexcept nogil
    # The client is sent a message with this reply: it may answer, if it could not anyway. False without memory. The
    # lock is held.
    cdef bint note_reply(self, PollState *ps, const Slice *reply) noexcept nogil
