"""The session of a link: what those of routes and leaf nodes share beside the protocol.

The control plane answers the peer's CONNECT and INFO; it may say that both servers compress. When it has registered the
peer, a kind's own `join` says what the connection carries, and the session begins to exchange interest.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t

from gnats.core.accounts.registry cimport AccountRegistry
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.links.link cimport Link
from gnats.core.links.remote_subs cimport HeardInterest
from gnats.core.messages.message cimport Message
from gnats.core.messages.reserved cimport is_mapped_reply
from gnats.core.net.connection cimport Connection, SessionType
from gnats.core.net.transport cimport Transport
from gnats.core.protocol.parser cimport ParserHandlers
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.interest_queue cimport InterestChange
from gnats.core.textsession cimport TEXT_CTL, TextSession

cdef enum:
    CTL_ACCEPTED = TEXT_CTL         # the control plane has accepted a CONNECT
    CTL_JOINED = TEXT_CTL << 1      # join()
    CTL_PINGS = TEXT_CTL << 2       # set_pings()
    CTL_COMPRESS = TEXT_CTL << 3    # compress()
    CTL_LEVEL = TEXT_CTL << 4       # set_uncompressed()
    LINK_CTL = TEXT_CTL << 5        # a kind of link numbers its own from here on
    # Bytes of changes of interest that may wait; a peer that falls behind by more begins anew.
    MOST_INTEREST = 1 << 30
    FEW_BYTES = 512                 # bytes of a line that fit on the stack


cdef class LinkSession(TextSession):
    cdef AccountRegistry registry
    cdef Link link
    cdef HeardInterest heard
    # Digests of interest, which gnats servers compare (core.subjects.digest); set before link_begin().
    cdef uint8_t tells_digests     # this server's go to the peer
    cdef uint8_t hears_digests     # the peer's come, and are compared
    cdef uint8_t reads_digests     # either, for good: INFO lines with digests are not for the control plane
    cdef uint8_t digest_told       # the peer may ask for all interest once, because the digest differs
    cdef uint8_t differed          # the last comparison has found a difference
    cdef uint64_t repairs          # how often the peer has told all again, and something was missing or stale; atomic
    cdef uint8_t joined            # the control plane has registered the peer
    cdef uint8_t measured          # post EV_PONG at the next PONG
    cdef uint8_t unsettled         # it is not agreed yet whether to compress
    cdef Transport *s2             # the layer that compresses; NULL: none
    # set by compress(), under lock; the owner's from CTL_COMPRESS on
    cdef Transport *staged_s2
    cdef Slice staged_info         # in `keep`
    cdef uint8_t staged_solicited
    # set by set_uncompressed(), under lock
    cdef uint8_t staged_uncompressed
    cdef int64_t staged_ping_interval   # under lock, as the next
    cdef int32_t staged_ping_max

    # Handle the requests that all links have.
    cdef void take_link_requests(self, uint32_t ctl) noexcept nogil
    cdef void switch_to_s2(self) noexcept nogil
    # It is agreed whether to compress: begin to send PINGs.
    cdef void settle(self) noexcept nogil
    cdef void change_pings(self) noexcept nogil
    # Announce what waits: the link has begun.
    cdef void announce_first(self) noexcept nogil
    # Begin to keep digests of what the peer is told, and to compare those of what it tells.
    cdef void keep_digests(self, bint tells, bint hears) noexcept nogil
    # Subscribe in accounts that have come since the peer has told of them.
    cdef void take_kept(self) noexcept nogil
    cdef void send_digest(self) noexcept nogil
    cdef void send_digest_info(self, const char *value, size_t n) noexcept nogil
    # Tell the peer all interest again.
    cdef void tell_again(self) noexcept nogil
    # The peer has told all interest that has this sum.
    cdef void compare(self, uint64_t sum) noexcept nogil
    cdef void end_repair(self, uint64_t sum) noexcept nogil
    # Queue a line of interest, without CR LF.
    cdef bint queue_line(self, char *line, char *end) noexcept nogil
    cdef void walk(
        self, bint (*write)(Subscriber owner, const InterestChange *change) noexcept nogil) noexcept nogil
    # Deliver a message of the peer, in the account that it names.
    cdef void route_message(self, Message *m) noexcept nogil
    cdef void route_traced(self, Message *m) noexcept nogil
    # The name of the only account that the link carries; p is NULL: lines name theirs.
    cdef Slice only_account(self) noexcept nogil
    cdef int process_connect(self, char *arg, size_t n) noexcept nogil
    cdef int process_info(self, char *arg, size_t n) noexcept nogil
    cdef int post_info(self, char *arg, size_t n) noexcept nogil
    cdef int process_pong(self) noexcept nogil


# Fill in the functions that the sessions of all links share; `on_control` is left to the session.
cdef void share_link_session(SessionType *session) noexcept nogil
# The same for the parser's handlers: all but those of messages and subscriptions.
cdef void share_link_verbs(ParserHandlers *verbs) noexcept nogil
# Undo what join() has begun, before the session's memory goes.
cdef void link_session_free(LinkSession c) noexcept nogil

# A message of a stream that comes over a link: its subject selects the subscribers, who see another one: that stands
# behind an @ in the reply. Undo this (jsAckDeliverIdx).
cdef inline void show_deliver_subject(Message *m) noexcept nogil:
    if m.reply.n and (m.reply.p[0] == c'$' or is_mapped_reply(&m.reply)):
        show_subject_of_reply(m)


# The same for a reply that may be an acknowledgement's.
cdef void show_subject_of_reply(Message *m) noexcept nogil
