"""The interest that the server at the other end of a link tells of: RS+, RS-, LS+, LS- (processRemoteSub in route.go).

Each subject, or subject and queue group, of an account is one subscription of the link. Its sid is made of its kind,
account, subject and group, as monitoring shows it: `R ACC subject[ group]`, `L origin ACC subject[ group]`. A link for
one account leaves out ACC.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gnats.core.accounts.registry cimport AccountRegistry
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.links.kept_interest cimport KeptInterest
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.trie cimport Subscription


cdef enum RemoteSubOutcome:
    REMOTE_SUB_OK
    REMOTE_SUB_BAD_ARGS
    REMOTE_SUB_INVALID       # not a subject
    REMOTE_SUB_NO_MEMORY


# Whose interest a line tells of.
cdef struct RemoteInterest:
    char kind              # 'R', or 'L': on behalf of a leaf node, whose origin comes first
    Slice account          # p is NULL: the line names it


# All interest that the peer has told of: the link's subscriptions, and what is kept until its account comes. The
# owner's.
cdef struct HeardInterest:
    KeptInterest kept
    uint64_t sum          # of the digests (core.subjects.digest)
    # The peer can tell all its interest again. What it has told before counts no more from then on, and goes at the
    # end unless it was told again.
    uint32_t round        # how often that has begun
    uint8_t again         # that has begun, and not ended
    uint64_t missing      # subscriptions that were not here before
    uint8_t full          # something could not be kept; set for good


cdef RemoteSubOutcome process_remote_sub(
    Subscriber c, AccountRegistry registry, HeardInterest *heard, const RemoteInterest *whose, char *arg, size_t n
) noexcept nogil
cdef RemoteSubOutcome process_remote_unsub(
    Subscriber c, AccountRegistry registry, HeardInterest *heard, const RemoteInterest *whose, char *arg, size_t n
) noexcept nogil
# Subscribe in the accounts that have come. `account` is the only one of the link; p is NULL: it has all. False: no
# memory.
cdef bint subscribe_kept(
    Subscriber c, AccountRegistry registry, HeardInterest *heard, const Slice *account) noexcept nogil
# A subscription goes, because its account has been removed: keep what the peer has told. False: no memory.
cdef bint keep_heard(Subscriber c, HeardInterest *heard, const Subscription *s) noexcept nogil
# A subscription goes, because the link does not carry its account any more.
cdef void forget_heard(HeardInterest *heard, const Subscription *s) noexcept nogil
# The link does not carry an account any more: forget what is kept of it.
cdef void forget_kept(HeardInterest *heard, const Slice *account) noexcept nogil
cdef void free_heard(HeardInterest *heard) noexcept nogil
# The peer tells all again.
cdef void hear_again(HeardInterest *heard) noexcept nogil
# It has told all: unsubscribe from the rest. Return how many that were.
cdef uint64_t end_hearing(Subscriber c, HeardInterest *heard) noexcept nogil
# Log a record whose data are an account that there is not, and a subject in it.
cdef void log_unknown_account(Subscriber c, int code, const Slice *account, const Slice *subject) noexcept nogil
