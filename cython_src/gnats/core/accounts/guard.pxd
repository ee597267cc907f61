"""The permissions of a session, and the replies that they allow it to publish to (the permissions half of client.go).

The owner installs permissions and checks the subjects that its peer sends. A publisher's poller checks what is
delivered to the peer, with its own cache of verdicts. It reads the pointer without a lock: replaced permissions live on
until no poller can hold a pointer to them (core.runtime.quiesce); see Subscriber.stage_permissions.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t

from gnats.core.auth.replies cimport ReplyTable
from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription
from gnats.includes.pthread cimport pthread_mutex_t

cdef enum:
    # checks that a delivery needs; bits of Guard.checks
    CHECK_DELIVERIES = 1    # some subscription also matches subjects that may not be delivered
    NOTE_REPLIES = 2        # the peer may publish to the reply of a message that it was sent
    CHECK_DENIALS = 4       # of a leaf node: what may not be announced must not be delivered either


cdef struct Guard:
    uint8_t kind            # of the connection
    uint8_t checks          # atomic, the owner writes
    void *permissions       # borrowed Permissions, NULL: everything is allowed; atomic, the owner writes
    pthread_mutex_t *lock   # the connection's
    # under lock
    void *staged            # borrowed Permissions for guard_next()
    void *coming            # borrowed Permissions that guard_install() installs
    uint64_t replaced       # grace number of the last installation
    ReplyTable *replies     # that the peer may publish to; NULL: its permissions allow none


cdef void guard_init(Guard *g, uint8_t kind, pthread_mutex_t *lock) noexcept nogil
cdef void guard_free(Guard *g) noexcept nogil

# -- the owner --
# Take the staged permissions, and return them.
cdef void *guard_next(Guard *g) noexcept nogil
# Install what guard_next() has returned, with the `checks` that are known to be needed; False without memory. All
# deliveries are checked that might be denied: the caller checks the subscriptions again, then calls guard_filter().
cdef bint guard_install(Guard *g, uint8_t checks) noexcept nogil
# Check deliveries from now on, or stop checking them.
cdef void guard_filter(Guard *g, bint needed) noexcept nogil
# Deliver to a leaf node nothing from now on that its permissions deny to announce.
cdef void guard_denials(Guard *g) noexcept nogil
# Return whether the peer may publish to a subject. Call it only with permissions. Count a reply that allows it as used.
cdef bint may_publish(Guard *g, PollState *ps, const Slice *subject) noexcept nogil
# Return whether the subject is the reply of a message that the peer was sent, which it may use. Count that.
cdef bint may_reply(Guard *g, PollState *ps, const Slice *subject) noexcept nogil
# Return whether the peer may subscribe. If the subscription needs it, check deliveries from now on.
cdef bint may_subscribe(Guard *g, const char *subject, size_t n, const char *queue, size_t qn) noexcept nogil

# -- any poller `ps`, when `checks` says so --
# Return whether the message must not be delivered to this subscription.
cdef bint delivery_denied(Guard *g, PollState *ps, const Slice *subject, const Subscription *s) noexcept nogil
# The peer is sent a message with this reply: allow it to publish there, unless it may anyway. False without memory. The
# lock is held.
cdef bint note_reply(Guard *g, PollState *ps, const Slice *reply) noexcept nogil
