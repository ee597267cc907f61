"""The session of a leaf node, which connects an account with one of another server (the protocol half of leafnode.go).

One side is the *hub*, the other the *spoke*; either may have dialled. A hub tells a spoke of all interest in the
account, a spoke its hub of what its own clients and leaf nodes want.

The control plane answers the peer's CONNECT and INFO. When it has registered the peer, it says which account the
connection is for (`join`); the session then announces interest and takes the peer's.
"""
cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint8_t

from gnats.core.accounts.account cimport Account
from gnats.core.links.link_session cimport LinkSession
from gnats.core.messages.message cimport Message
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.interest_queue cimport InterestChange

# What the peer has sent that the control plane answers: `a` of EV_LEAF. The session has stopped reading.
cpdef enum LeafEvent:
    LEAF_LOOP = 1               # interest in the account's own loop subject has come back; data: the subject
    LEAF_PUBLISH_DENIED = 2     # permissions forbid the peer to send a message, or to subscribe; data: the subject
    LEAF_SUBSCRIBE_DENIED = 3
    LEAF_ERROR = 4              # data: what followed -ERR


cdef struct MappedSubject:
    Slice name
    uint8_t wanted                 # it is announced for its subscribers, too


cdef struct Mapped:
    size_t n
    MappedSubject at[1]            # what they name follows


@cython.final
cdef class LeafSession(LinkSession):
    cdef uint8_t info_first        # the peer may send INFO before its CONNECT
    # set by join(), under lock; the owner's from CTL_JOINED on
    cdef void *staged_account      # borrowed Account; `keep` has it
    cdef uint8_t staged_form, staged_traces, staged_passes, staged_spoke, staged_isolated, staged_dialled
    cdef uint8_t own_hub           # the peer is the hub, and this server has dialled it: its replies are trusted
    cdef Slice staged_cluster, loop_subject
    cdef int64_t max_subs          # -1: any number
    cdef int staged_max_payload
    # Subjects that are announced whoever subscribes: each one block, NULL for none
    cdef Mapped *mapped
    cdef Mapped *staged_mapped     # under lock, as the next
    cdef uint8_t mapped_staged
    cdef Mapped *mapped_before     # during a change of them
    # borrowed Permissions, whose publish half says what the peer may send; NULL: anything. As the next under lock
    cdef void *receive
    cdef void *staged_receive
    cdef uint8_t changing          # permissions are being changed
    cdef void *permissions_before  # borrowed Permissions, during a change of them
    cdef void *coming              # the same: those that come, which may call for CHECK_DENIALS
    cdef uint8_t denials

    cdef void take_requests(self, uint32_t ctl) noexcept nogil
    cdef void begin_to_link(self) noexcept nogil
    cdef void use_permissions(self, uint8_t checks) noexcept nogil
    cdef void change_permissions(self) noexcept nogil
    # Return whether CHECK_DENIALS will be needed.
    cdef uint8_t denials_to_come(self) noexcept nogil
    cdef void note_to_come(self, const char *subject, size_t n, size_t qn) noexcept nogil
    # Return whether a request of the peer may name a mapped reply: answers to what follows the prefix go there then.
    cdef bint may_map(self, const Slice *reply) noexcept nogil
    cdef void announce_mapped_differences(self) noexcept nogil
    cdef void change_mapped(self) noexcept nogil
    cdef void unsubscribe_denied(self) noexcept nogil
    cdef bint is_mapped(self, const char *subject, size_t n) noexcept nogil
    cdef bint write_change(self, const InterestChange *change) noexcept nogil
    # Queue an LS+ if the permissions allow the subject now and did not before, an LS- if it is the other way round.
    cdef bint write_difference(self, const InterestChange *change) noexcept nogil
    cdef bint write_interest(
        self, const char *subject, size_t n, const char *queue, size_t qn, uint32_t weight) noexcept nogil
    cdef void announce_own(self, const Slice *subject, bint begins) noexcept nogil
    cdef bint calls_for_denials(
        self, const void *permissions, const char *subject, size_t n, size_t qn) noexcept nogil
    cdef void note_denials(self, const char *subject, size_t n, size_t qn) noexcept nogil
    cdef bint may_receive(self, const Slice *subject) noexcept nogil
    cdef bint may_send(self, const Slice *subject) noexcept nogil
    cdef int report(self, int what, const char *data, size_t n) noexcept nogil
    cdef int not_joined(self) noexcept nogil
    # -- verbs: the parser calls them --
    cdef int process_inbound_msg(self) noexcept nogil
    cdef void route_msg(self, Message *m) noexcept nogil
    cdef int process_sub(self, char *arg, size_t n) noexcept nogil
    cdef int process_unsub(self, char *arg, size_t n) noexcept nogil
    cdef int take_interest(self, const Slice *sid, const Slice *subject, const Slice *queue, int weight) noexcept nogil
