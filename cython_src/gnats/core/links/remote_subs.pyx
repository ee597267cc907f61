"""The interest that the server at the other end of a link tells of; see remote_subs.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport strlen

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.guard cimport may_subscribe
from gnats.core.accounts.registry cimport AccountRegistry
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.accounts.subscriptions cimport add_remote_sub, sub_account, unsubscribe
from gnats.core.net.log_records cimport LOG_CANNOT_EXPORT, LOG_UNKNOWN_ACCOUNT, LOG_UNKNOWN_ACCOUNT_UNSUB
from gnats.core.protocol.words cimport parse_size, split_line
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription
from gnats.core.subjects.subtable cimport subtable_find
from gnats.includes.atomics cimport load8
from gnats.includes.text cimport put

cdef enum:
    MOST_WORDS = 5         # origin, account, subject, queue group, weight
    FEW_BYTES = 512        # bytes of a sid that fit on the stack


# The words of a line.
cdef struct RemoteSub:
    Slice origin, account, subject, queue
    int weight
    size_t sid_n
    char *sid
    char few[FEW_BYTES]


cdef RemoteSubOutcome read_remote_sub(
    RemoteSub *sub, const RemoteInterest *whose, char *arg, size_t n, bint weighs
) noexcept nogil:
    """Read a line and make its sid, which forget_remote_sub() frees."""
    cdef Slice[MOST_WORDS] words
    cdef uint32_t count = split_line(arg, n, words, MOST_WORDS)
    cdef uint32_t at = (whose.kind == c'L') + (whose.account.p == NULL)   # where the subject is
    cdef uint32_t group = 2 if weighs else 1
    cdef char *p
    if count != at + 1 and count != at + 1 + group:
        return REMOTE_SUB_BAD_ARGS
    sub.origin.n = sub.account.n = sub.queue.n = 0
    sub.queue.p = arg
    if whose.kind == c'L':
        sub.origin = words[0]
    sub.account = words[at - 1] if whose.account.p == NULL else whose.account
    sub.subject = words[at]
    sub.weight = 1
    if count > at + 1:
        sub.queue = words[at + 1]
        if weighs:
            sub.weight = min(parse_size(words[at + 2].p, words[at + 2].n), <int> MOST_WEIGHT)
    sub.sid_n = strlen(b"L    ") + sub.origin.n + sub.account.n + sub.subject.n + sub.queue.n
    sub.sid = sub.few
    if sub.sid_n > sizeof(sub.few):
        sub.sid = <char *> malloc(sub.sid_n)
        if sub.sid == NULL:
            return REMOTE_SUB_NO_MEMORY
    p = sub.sid
    p[0] = whose.kind
    p += 1
    if whose.kind == c'L':
        p = put_word(p, &sub.origin)
    if whose.account.p == NULL:
        p = put_word(p, &sub.account)
    p = put_word(p, &sub.subject)
    if sub.queue.n:
        p = put_word(p, &sub.queue)
    sub.sid_n = p - sub.sid
    return REMOTE_SUB_OK


cdef inline char *put_word(char *p, const Slice *word) noexcept nogil:
    p[0] = c' '
    return put(p + 1, word.p, word.n)


cdef inline void forget_remote_sub(RemoteSub *sub) noexcept nogil:
    if sub.sid != sub.few:
        free(sub.sid)


cdef RemoteSubOutcome process_remote_sub(
    Subscriber c, AccountRegistry registry, const RemoteInterest *whose, char *arg, size_t n
) noexcept nogil:
    cdef RemoteSub sub
    cdef RemoteSubOutcome outcome = read_remote_sub(&sub, whose, arg, n, True)
    cdef void *account
    if outcome != REMOTE_SUB_OK:
        return outcome
    account = registry.find(sub.account.p, sub.account.n)
    if account == NULL:
        log_unknown_account(c, LOG_UNKNOWN_ACCOUNT, &sub.account, &sub.subject)
    elif not may_subscribe(&c.guard, sub.subject.p, sub.subject.n, sub.queue.p, 0):
        c.debugf(LOG_CANNOT_EXPORT, 0, sub.subject.p, sub.subject.n)
    else:
        outcome = set_interest(c, <Account> account, &sub)
    forget_remote_sub(&sub)
    return outcome


cdef RemoteSubOutcome set_interest(Subscriber c, Account account, const RemoteSub *sub) noexcept nogil:
    """Subscribe; or, where the link has that subscription, note its new weight."""
    cdef Subscription *s = subtable_find(&c.subs, sub.sid, sub.sid_n)
    cdef int error = 0
    if s != NULL and sub_account(s) != <void *> account:
        unsubscribe(c, s)   # it is in an account of the same name that has been removed
        s = NULL
    if sub.weight <= 0:   # no member: nobody must choose it
        if s != NULL:
            unsubscribe(c, s)
    elif s == NULL:
        s = add_remote_sub(
            c, account, sub.subject.p, sub.subject.n, sub.queue.p, sub.queue.n, <uint32_t> sub.weight, sub.sid,
            sub.sid_n, &error)
        if s == NULL:
            return REMOTE_SUB_INVALID if error else REMOTE_SUB_NO_MEMORY
    elif sub.queue.n:
        account.update_remote_qsub(s, <uint32_t> sub.weight)
    return REMOTE_SUB_OK


cdef void log_unknown_account(Subscriber c, int code, const Slice *account, const Slice *subject) noexcept nogil:
    cdef size_t n = account.n + 1 + subject.n
    cdef char *names = <char *> malloc(n)
    if names == NULL:
        return
    put(names, account.p, account.n)[0] = 0
    put(names + account.n + 1, subject.p, subject.n)
    c.log(code, 0, names, n)
    free(names)


cdef RemoteSubOutcome process_remote_unsub(
    Subscriber c, AccountRegistry registry, const RemoteInterest *whose, char *arg, size_t n
) noexcept nogil:
    cdef RemoteSub sub
    cdef RemoteSubOutcome outcome = read_remote_sub(&sub, whose, arg, n, False)
    cdef Subscription *s
    if outcome == REMOTE_SUB_OK:
        s = subtable_find(&c.subs, sub.sid, sub.sid_n)
        if s != NULL:
            unsubscribe(c, s)
        elif load8(&c.server._debug) and registry.find(sub.account.p, sub.account.n) == NULL:
            log_unknown_account(c, LOG_UNKNOWN_ACCOUNT_UNSUB, &sub.account, &sub.subject)
        forget_remote_sub(&sub)
    return outcome
