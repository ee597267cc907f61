"""The permissions of a session, and the replies that they allow (the permissions half of client.go).

The owner installs permissions and asks about what its peer sends. A publisher's poller checks what the peer is sent,
with its own cache of verdicts. It reads the pointer without a lock: replaced permissions live on until no poller can be
looking at them (core.quiesce), see Subscriber.stage_permissions.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t

from gnats.core.pollstate cimport PollState
from gnats.core.replies cimport ReplyTable
from gnats.core.slice cimport Slice
from gnats.core.sublist cimport Subscription
from gnats.includes.pthread cimport pthread_mutex_t

cdef enum:
    # what a delivery has to look at; bits of Guard.checks
    CHECK_DELIVERIES = 1    # some subscription matches more than may be delivered
    NOTE_REPLIES = 2        # the peer may publish to the replies of what it is sent


cdef struct Guard:
    uint8_t kind            # of the connection
    uint8_t checks          # atomic, the owner writes it
    void *permissions       # borrowed Permissions, NULL: everything is allowed; atomic, the owner writes it
    pthread_mutex_t *lock   # the connection's
    # under lock
    void *staged            # borrowed Permissions that guard_install() is to take
    uint64_t replaced       # grace number of the last change
    ReplyTable *replies


cdef void guard_init(Guard *g, uint8_t kind, pthread_mutex_t *lock) noexcept nogil
cdef void guard_free(Guard *g) noexcept nogil

# -- the owner --
# Take over what was staged; False without memory. Subscriptions are checked anew; see guard_filter().
cdef bint guard_install(Guard *g) noexcept nogil
# From now on deliveries are checked, or not.
cdef void guard_filter(Guard *g, bint needed) noexcept nogil
# May the peer publish to a subject? Only asked when there are permissions.
cdef bint may_publish(Guard *g, PollState *ps, const Slice *subject) noexcept nogil
# May it subscribe? If so, deliveries are checked from now on where they must be.
cdef bint may_subscribe(Guard *g, const char *subject, size_t n, const char *queue, size_t qn) noexcept nogil

# -- any poller `ps`, asked only when `checks` says so --
cdef bint delivery_denied(Guard *g, PollState *ps, const Slice *subject, const Subscription *s) noexcept nogil
# The peer is sent a message with this reply: it may answer, if it could not anyway. False without memory. The lock is
# held.
cdef bint note_reply(Guard *g, PollState *ps, const Slice *reply) noexcept nogil
