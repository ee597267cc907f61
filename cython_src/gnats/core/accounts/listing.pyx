"""Read many connections or subscriptions at once, for monitoring: each is read by itself, not all at one moment."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.accounts.subscriptions cimport sub_account
from gnats.core.runtime.clock cimport monotonic_ns, realtime_ns
from gnats.core.runtime.quiesce cimport QsParticipant, qs_offline, qs_online, qs_register, qs_unregister
from gnats.core.subjects.sublist cimport SUB_SHADOW, MatchResult, Sublist, Subscription, sub_row
from gnats.includes.atomics cimport load64, loadi64
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock

cdef enum Column:
    PENDING_BYTES, IN_MSGS, OUT_MSGS, IN_BYTES, OUT_BYTES, SUBSCRIPTIONS, LAST_ACTIVITY, RTT, SLOW

COLUMNS = {
    "pending_bytes": PENDING_BYTES,
    "in_msgs": IN_MSGS,
    "out_msgs": OUT_MSGS,
    "in_bytes": IN_BYTES,
    "out_bytes": OUT_BYTES,
    "subscriptions": SUBSCRIPTIONS,
    "last_activity": LAST_ACTIVITY,
    "rtt": RTT,
    "slow": SLOW,
}


cdef int64_t counter(Subscriber c, Column which, int64_t offset) noexcept:
    cdef int64_t remote = 0
    if which == PENDING_BYTES or which == OUT_MSGS or which == OUT_BYTES:
        pthread_mutex_lock(&c.lock)
        remote = c.remote.bytes if which == PENDING_BYTES else c.remote_msgs if which == OUT_MSGS else c.remote_bytes
        pthread_mutex_unlock(&c.lock)
    if which == PENDING_BYTES:
        return load64(&c.backlog) + remote
    if which == OUT_MSGS:
        return load64(&c.out_msgs) + remote
    if which == OUT_BYTES:
        return load64(&c.out_bytes) + remote
    if which == IN_MSGS:
        return load64(&c.in_msgs)
    if which == IN_BYTES:
        return load64(&c.in_bytes)
    if which == SUBSCRIPTIONS:
        return load64(&c.nsubs)
    if which == RTT:
        return loadi64(&c.rtt)
    if which == SLOW:
        return load64(&c.nslow)
    return offset + (loadi64(&c.last_in) or c.start_time)


def column(list connections not None, str name not None) -> list:
    """Return one of snapshot()'s counters for each connection. Raises KeyError for an unknown name."""
    cdef Column which = COLUMNS[name]
    cdef int64_t offset = realtime_ns() - monotonic_ns()
    return [counter(<Subscriber?> c, which, offset) for c in connections]


def total(list connections not None, str name not None) -> int:
    """Return the sum of column(). Raises KeyError for an unknown name."""
    cdef Column which = COLUMNS[name]
    cdef int64_t sum = 0
    for c in connections:
        sum += counter(<Subscriber?> c, which, 0)
    return sum


def account_of(Subscriber c not None) -> Account:
    """Return the account that a connection is bound to."""
    return <Account> c.account


def matching(Sublist sl not None, bytes subject not None) -> list:
    """Return (subject, queue, sid, delivered, max, cid, account) of each subscription that matches `subject`.

    Includes every member of a queue group. Subscriptions of the account itself have cid 0 and account None. Raises
    MemoryError.
    """
    return rows_of(sl, subject, False)


def shadows(Sublist sl not None) -> list:
    """Return rows like matching()'s for the shadows that other accounts' imports have made in `sl`."""
    return rows_of(sl, b"", True)


cdef list rows_of(Sublist sl, bytes subject, bint all_shadows):
    cdef QsParticipant reader
    cdef const char *p = PyBytes_AS_STRING(subject)
    cdef size_t n = PyBytes_GET_SIZE(subject)
    cdef MatchResult *r
    cdef uint32_t i, j
    cdef list rows = []
    # While this reader is online, nothing that the result points to is freed.
    qs_register(&reader)
    qs_online(&reader)
    try:
        with nogil:
            r = sl.all() if all_shadows else sl.match(p, n)
        if r == NULL:
            raise MemoryError
        try:
            for i in range(r.npsubs):
                if not all_shadows or r.psubs[i].flags == SUB_SHADOW:
                    rows.append(row(r.psubs[i]))
            for i in range(r.nqgroups):
                for j in range(r.qgroups[i].n):
                    rows.append(row(r.qgroups[i].subs[j]))
        finally:
            free(r)
    finally:
        qs_offline(&reader)
        qs_unregister(&reader)
    return rows


cdef tuple row(const Subscription *s):
    if s.client == NULL:
        return (*sub_row(s), 0, None)
    return (*sub_row(s), (<Subscriber> s.client).cid, <Account> sub_account(s))
