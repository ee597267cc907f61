"""What a link tells the server at its other end: the interest of the accounts that it carries, and all changes of it.

All links share this; a kind of link says which accounts it carries, and writes the lines. Interest goes through a queue
(core.subjects.interest_queue), so that it can be noted on any thread. A message must not overtake the interest that its
sender had before: see SessionType.announce.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.registry cimport AccountRegistry, AccountSink
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.interest_queue cimport FollowedAccount, InterestChange, InterestQueue
from gnats.core.subjects.sublist cimport InterestSink
from gnats.core.subjects.trie cimport Interest, Node, Subscription
from gnats.includes.atomics cimport load8_acquire, load_ptr_acquire


# How far a link with a `frame` has come with what it tells of an account.
cdef enum Told:
    TOLD_NOTHING
    TOLD_BEGINNING    # interest follows
    TOLD_ALL


# How much link_announce() does.
cdef enum Extent:
    ANNOUNCE_TURN     # walk for about a turn, and go on in the owner's next round; not above the gate
    ANNOUNCE_READY    # not above the gate
    ANNOUNCE_ALL      # all, as before a message


cdef struct Follower:
    FollowedAccount followed
    Follower *next
    uint8_t told               # Told; the owner's


cdef struct Link:
    AccountSink sink           # first: the registry knows only this
    InterestQueue queue
    void *owner                # borrowed Subscriber
    void *registry             # borrowed AccountRegistry
    # Of the accounts that it carries; under the registry's lock. `unwalked`: those whose interest is still to be
    # walked; the owner reads the pointer without the lock.
    Follower *unwalked
    Follower *followers
    uint8_t unnamed            # the lines do not name the account, of which there is one; set before link_begin()
    uint8_t begun              # link_begin() was called; the owner's
    uint8_t lost               # there was no memory to follow an account; atomic
    uint8_t gone               # an account has been removed since link_announce() looked; atomic
    uint8_t untold             # it had interest whose end the peer is not told of; atomic, set before `gone`
    uint8_t came               # an account has come since the owner looked; atomic
    uint64_t written           # changes that write() was called for; the owner's
    # Return whether the link carries an account. Called with the registry's lock held.
    bint (*carries)(Subscriber owner, Account account) noexcept nogil
    # Queue the lines for a change. Return False when out of memory.
    bint (*write)(Subscriber owner, const InterestChange *change) noexcept nogil
    # NULL, or set before link_begin(): queue the line that goes before all interest in an account that comes, or,
    # without `begins`, behind it. Return False when out of memory. Called with the registry's lock held.
    bint (*frame)(Subscriber owner, Account account, bint begins) noexcept nogil
    # NULL, or called before a subscription of the owner goes, because its account has been removed, or because the
    # link does not carry it any more.
    void (*leave)(Subscriber owner, const Subscription *s, bint removed) noexcept nogil


# `note`: see InterestQueue.
cdef void link_init(
    Link *link, Subscriber owner, AccountRegistry registry, size_t limit,
    bint (*carries)(Subscriber owner, Account account) noexcept nogil,
    bint (*write)(Subscriber owner, const InterestChange *change) noexcept nogil,
    void (*note)(
        InterestSink *sink, const Subscription *s, const Node *node, const Interest *before,
        const Interest *now) noexcept nogil) noexcept nogil
cdef void link_free(Link *link) noexcept nogil

# -- the owner --
# Follow all accounts that the link carries, from now on.
cdef void link_begin(Link *link) noexcept nogil
# Follow none any more.
cdef void link_end(Link *link) noexcept nogil
# Queue the lines for changes that wait, and for what is still to be walked (SessionType.announce). When some are lost,
# or all are too many, close: the peer must begin anew. Return whether some are left until there is room for them.
cdef bint link_announce(Subscriber owner, Link *link, Extent extent) noexcept nogil


cdef inline bint link_waits(const Link *link) noexcept nogil:
    """Return whether link_announce() has something to announce, or to walk."""
    return load8_acquire(&link.queue.waiting) != 0 or load_ptr_acquire(<void **> &link.unwalked) != NULL


# Call write() for all interest in the accounts that the link follows, as if it had just come. Then announce what has
# changed meanwhile, also what has been undone: write() may have told of it, or missed it. False: no memory.
cdef bint link_walk(
    Subscriber owner, Link *link, bint (*write)(Subscriber owner, const InterestChange *change) noexcept nogil
) noexcept nogil
# carries() says something else of this account now: follow it, or follow it no longer, and remove the peer's
# subscriptions there.
cdef void link_account_changed(Subscriber owner, Link *link, const Slice *name) noexcept nogil
# Remove the subscriptions in accounts that have been removed. Return whether the peer believes that these have
# interest here, as far as digests are kept.
cdef bint link_remove_gone(Subscriber owner, Link *link) noexcept nogil
# Return whether the peer has been told of all interest there is; sum[0]: of its digests (core.subjects.digest), which
# the link keeps if `digests` of its queue is set before link_begin().
cdef bint link_sum(Link *link, uint64_t *sum) noexcept nogil
