"""Changes of interest that wait for the poller of a link to another server (half of updateRemoteSubscription).

A sink of interest may not take a connection's lock. A link therefore has a queue with a lock of its own: sinks in the
sublists of many accounts put changes into it, on any thread, and the link's poller takes them. The queue holds one
change for each account, origin, subject and queue group, with the interest that the link took last and the present
interest. A change that is undone before the link takes it leaves the queue. So the queue never holds more changes than
a link that begins anew would get, however long the link takes none.

A queue that runs out of memory or exceeds its limit drops everything and is *incomplete* until the link takes from it
again: the link must then begin anew.

What is there when a link begins is walked in slices. A slice does not go through the queue: while the sublist is
locked, nothing else changes there, so the changes of a slice need not be found again. They follow all that waits.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport InterestSink, Sublist
from gnats.core.subjects.trie cimport Interest, Node, Subscription
from gnats.includes.pthread cimport pthread_mutex_t

cdef enum:
    # which interest a link hears of: bits of InterestQueue.wanted
    WANT_LOCAL = 1
    WANT_REMOTE = 2
    WANT_SERVICES = 4
    # The number of subscriptions to a subject outside of queue groups. Without this: 1 for any number above 0.
    WANT_NUMBERS = 8


cdef struct InterestChange:
    InterestChange *next      # in its bucket
    uint32_t hash
    uint32_t subject_len
    uint32_t queue_len
    uint32_t origin_len
    InterestChange *later     # in the order of the first change that the link has not taken
    InterestChange *earlier
    void *account             # as in interest_queue_follow
    Interest before           # the interest that the link took last; 0 for kinds of interest that it does not want
    Interest now
    char data[1]              # subject, queue group and origin, adjacent


cdef inline const char *change_subject(const InterestChange *change) noexcept nogil:
    return change.data


cdef inline const char *change_queue(const InterestChange *change) noexcept nogil:
    return change.data + change.subject_len


cdef inline Slice change_origin(const InterestChange *change) noexcept nogil:
    """Return the cluster of the leaf nodes whose interest it is; empty: it is not theirs."""
    cdef Slice origin
    origin.p = <char *> change.data + change.subject_len + change.queue_len
    origin.n = change.origin_len
    return origin


cdef struct ChangeTable:
    InterestChange **slots
    uint32_t mask
    uint32_t n


cdef struct InterestQueue:
    uint8_t wanted            # WANT_* bits; like the next four, set once
    uint8_t digests           # keep sums of digests
    size_t limit              # most bytes of changes
    # What the sinks call; at first, it notes a change as the sublist tells it, as `wanted` says. A link that makes
    # differences among the subscriptions of other links sets another, which calls interest_queue_note(). Both run with
    # the sublist's lock held to write.
    void (*note)(
        InterestSink *sink, const Subscription *s, const Node *node, const Interest *before,
        const Interest *now) noexcept nogil
    # The queue was empty and has something to take now. Called with a sublist's lock held to write.
    void (*wake)(void *link) noexcept nogil
    void *link
    uint8_t waiting           # there is something to take; atomic, for a look without the lock
    pthread_mutex_t lock      # the rest is under it
    ChangeTable table
    InterestChange *first
    InterestChange *last
    size_t bytes
    uint64_t sum              # with `digests`: of the interest that the link is told of, what waits included
    uint8_t incomplete
    uint8_t keeps             # see interest_queue_keep()


# A queue's sink in the sublist of one account; it must not move while the sublist has it.
cdef struct FollowedAccount:
    InterestSink sink         # first: the sublist knows only this
    InterestQueue *queue
    void *account
    Slice name                # the account's in digests; p is NULL: these leave it out
    uint64_t sum              # its part of the queue's; under the queue's lock
    # During a slice of a walk, with the sublist locked: where its next change goes, the difference that it makes to the
    # sums, and whether there was no memory for one. `slice` is NULL at other times.
    InterestChange **slice
    uint64_t slice_sum
    uint8_t slice_lost


cdef void interest_queue_init(
    InterestQueue *q, uint8_t wanted, size_t limit, void (*wake)(void *link) noexcept nogil, void *link) noexcept nogil
# Free all changes. The queue follows no account any more.
cdef void interest_queue_free(InterestQueue *q) noexcept nogil
# Begin to follow an account: interest_queue_walk() takes what is there, and the queue gets what changes behind it.
# `account` comes back with changes; `name` is the account's in digests, NULL: these leave it out.
cdef void interest_queue_follow(
    InterestQueue *q, FollowedAccount *sink, Sublist sl, void *account, const Slice *name) noexcept nogil
# Take all changes that wait, and then the interest at some of the account's nodes, about `most`, that no walk has come
# to: as interest_queue_take(). done[0]: there is no more. One thread at a time walks.
cdef InterestChange *interest_queue_walk(
    FollowedAccount *sink, Sublist sl, uint32_t most, bint *done, bint *incomplete) noexcept nogil
# Note the interest of an origin (NULL: none) in the subject and queue group of `s`: it was `before`, and is `now`.
cdef void interest_queue_note(
    FollowedAccount *followed, const Slice *origin, const Subscription *s, const Interest *before,
    const Interest *now) noexcept nogil
# The same for interest that was 0 at a moment ago, of which a part that weighs `n` has come.
cdef void interest_queue_add(
    FollowedAccount *followed, const Slice *origin, const Subscription *s, uint32_t n) noexcept nogil
# Return whether the link has taken all changes, with the sum of the digests of all interest that it was told of.
cdef bint interest_queue_sum(InterestQueue *q, uint64_t *sum) noexcept nogil
# Follow an account no longer, and drop its changes. Those that the link has taken are the link's. Return, with
# `digests`, whether the link has been told of interest there.
cdef bint interest_queue_leave(FollowedAccount *sink, Sublist sl) noexcept nogil
# While `keep`, a change that is undone stays: the link may have been told of it otherwise, by another queue.
cdef void interest_queue_keep(InterestQueue *q, bint keep) noexcept nogil
# Take up to `most` changes, the oldest first, chained through `later`; free() each. NULL: there are none.
# incomplete[0]: changes have been lost. The link must forget all changes that it took, and follow each account anew.
cdef InterestChange *interest_queue_take(InterestQueue *q, uint32_t most, bint *incomplete) noexcept nogil
