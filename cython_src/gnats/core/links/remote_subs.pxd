"""The interest that the server at the other end of a link tells of: RS+, RS-, LS+, LS- (processRemoteSub in route.go).

Each subject, or subject and queue group, of an account is one subscription of the link. Its sid is made of its kind,
account, subject and group, as monitoring shows it: `R ACC subject[ group]`, `L origin ACC subject[ group]`. A link for
one account leaves out ACC.
"""
from libc.stddef cimport size_t

from gnats.core.accounts.registry cimport AccountRegistry
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.runtime.slice cimport Slice


cdef enum:
    # A larger weight of a queue group counts as this: sums of weights have room for many links.
    MOST_WEIGHT = 1 << 20

cdef enum RemoteSubOutcome:
    REMOTE_SUB_OK
    REMOTE_SUB_BAD_ARGS
    REMOTE_SUB_INVALID       # not a subject
    REMOTE_SUB_NO_MEMORY


# Whose interest a line tells of.
cdef struct RemoteInterest:
    char kind              # 'R', or 'L': on behalf of a leaf node, whose origin comes first
    Slice account          # p is NULL: the line names it


cdef RemoteSubOutcome process_remote_sub(
    Subscriber c, AccountRegistry registry, const RemoteInterest *whose, char *arg, size_t n) noexcept nogil
cdef RemoteSubOutcome process_remote_unsub(
    Subscriber c, AccountRegistry registry, const RemoteInterest *whose, char *arg, size_t n) noexcept nogil
# Log a record whose data are an account that there is not, and a subject in it.
cdef void log_unknown_account(Subscriber c, int code, const Slice *account, const Slice *subject) noexcept nogil
