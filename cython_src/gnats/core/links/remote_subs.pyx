"""The interest that the server at the other end of a link tells of; see remote_subs.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strlen

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.guard cimport may_subscribe
from gnats.core.accounts.registry cimport AccountRegistry
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.accounts.subscriptions cimport account_sub, add_remote_sub, sub_account, unsubscribe
from gnats.core.links.kept_interest cimport (
    KEPT_FULL,
    KEPT_NO_MEMORY,
    MOST_KEPT,
    KeptOutcome,
    kept_add,
    kept_drop,
    kept_find,
    kept_free,
    kept_take,
    kept_take_new,
)
from gnats.core.net.log_records cimport (
    LOG_CANNOT_EXPORT,
    LOG_KEPT_FULL,
    LOG_UNKNOWN_ACCOUNT,
    LOG_UNKNOWN_ACCOUNT_UNSUB,
)
from gnats.core.protocol.words cimport parse_size, split_line
from gnats.core.runtime.kinds cimport ROUTER
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.digest cimport MOST_WEIGHT, digest_of_sid
from gnats.core.subjects.subject cimport hash_bytes
from gnats.core.subjects.sublist cimport Subscription, sub_sid
from gnats.core.subjects.subtable cimport subtable_find
from gnats.core.subjects.trie cimport sub_weight
from gnats.includes.atomics cimport load8
from gnats.includes.prefetch cimport prefetch
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
    uint32_t hash          # of the sid
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
    sub.hash = hash_bytes(sub.sid, sub.sid_n)
    return REMOTE_SUB_OK


cdef inline char *put_word(char *p, const Slice *word) noexcept nogil:
    p[0] = c' '
    return put(p + 1, word.p, word.n)


cdef inline void forget_remote_sub(RemoteSub *sub) noexcept nogil:
    if sub.sid != sub.few:
        free(sub.sid)


cdef RemoteSubOutcome process_remote_sub(
    Subscriber c, AccountRegistry registry, HeardInterest *heard, const RemoteInterest *whose, char *arg, size_t n
) noexcept nogil:
    cdef RemoteSub sub
    cdef RemoteSubOutcome outcome = read_remote_sub(&sub, whose, arg, n, True)
    cdef void *account
    if outcome != REMOTE_SUB_OK:
        return outcome
    # A table of many subscriptions is not in the cache: its bucket comes from memory while the account is looked up,
    # and the first subscription there while the digest is computed.
    if c.subs.n:
        prefetch(&c.subs.slots[sub.hash & c.subs.mask])
    account = registry.find(sub.account.p, sub.account.n)
    if account == NULL:
        if c.kind == ROUTER:
            log_unknown_account(c, LOG_UNKNOWN_ACCOUNT, &sub.account, &sub.subject)
        outcome = keep_interest(c, heard, &sub)
    elif not may_subscribe(&c.guard, sub.subject.p, sub.subject.n, sub.queue.p, 0):
        c.debugf(LOG_CANNOT_EXPORT, 0, sub.subject.p, sub.subject.n)
    else:
        if heard.kept.n:
            drop_kept(heard, &sub)   # the account has come just now
        outcome = set_interest(c, <Account> account, heard, &sub)
    forget_remote_sub(&sub)
    return outcome


cdef RemoteSubOutcome set_interest(
    Subscriber c, Account account, HeardInterest *heard, const RemoteSub *sub
) noexcept nogil:
    """Subscribe; or, where the link has that subscription, note its new weight."""
    cdef uint64_t digest
    cdef Subscription *s
    cdef int error = 0
    if c.subs.n:
        prefetch(c.subs.slots[sub.hash & c.subs.mask])
    digest = digest_of_sid(sub.sid, sub.sid_n)
    s = subtable_find(&c.subs, sub.sid, sub.sid_n)
    if s != NULL and sub_account(s) != <void *> account:
        forget_heard(heard, s)
        unsubscribe(c, s)   # it is in an account of the same name that has been removed
        s = NULL
    if sub.weight <= 0:   # no member: nobody must choose it
        if s != NULL:
            forget_heard(heard, s)
            unsubscribe(c, s)
    elif s == NULL:
        s = add_remote_sub(
            c, account, sub.subject.p, sub.subject.n, sub.queue.p, sub.queue.n, <uint32_t> sub.weight, sub.sid,
            sub.sid_n, &error)
        if s == NULL:
            return REMOTE_SUB_INVALID if error else REMOTE_SUB_NO_MEMORY
        account_sub(s).told = heard.round
        heard.sum += digest * <uint64_t> sub.weight
        heard.missing += heard.again
    else:
        if account_sub(s).told == heard.round:
            heard.sum -= digest * told_weight(s)
        account_sub(s).told = heard.round
        heard.sum += digest * <uint64_t> sub.weight
        if sub.queue.n:
            account.update_remote_qsub(s, <uint32_t> sub.weight)
    return REMOTE_SUB_OK


cdef inline uint64_t told_weight(const Subscription *s) noexcept nogil:
    return sub_weight(s) if s.queue_len else 1


cdef void forget_heard(HeardInterest *heard, const Subscription *s) noexcept nogil:
    if account_sub(s).told == heard.round:
        heard.sum -= digest_of_sid(sub_sid(s), s.sid_len) * told_weight(s)


# -- accounts that do not exist here -----------------------------------------------------------------------------------

cdef RemoteSubOutcome keep_interest(Subscriber c, HeardInterest *heard, const RemoteSub *sub) noexcept nogil:
    """Keep interest in an account that does not exist here, or forget it."""
    drop_kept(heard, sub)
    if sub.weight > 0:
        if not keep(c, heard, &sub.account, sub.sid, sub.sid_n, <uint32_t> sub.weight):
            return REMOTE_SUB_NO_MEMORY
        heard.sum += digest_of_sid(sub.sid, sub.sid_n) * <uint64_t> sub.weight
    return REMOTE_SUB_OK


cdef bint keep(
    Subscriber c, HeardInterest *heard, const Slice *account, const char *sid, size_t n, uint32_t weight
) noexcept nogil:
    """Keep a sid; or drop it, and log so the first time, when there is too much. False: no memory."""
    cdef KeptOutcome outcome = kept_add(&heard.kept, account, sid, n, weight)
    if outcome == KEPT_FULL and not heard.full:
        heard.full = 1
        c.log(LOG_KEPT_FULL, MOST_KEPT, NULL, 0)
    return outcome != KEPT_NO_MEMORY


cdef bint drop_kept(HeardInterest *heard, const RemoteSub *sub) noexcept nogil:
    """Return whether this interest was kept, and is not any more."""
    cdef Subscription *s = kept_find(&heard.kept, &sub.account, sub.sid, sub.sid_n)
    if s == NULL:
        return False
    heard.sum -= digest_of_sid(sub.sid, sub.sid_n) * s.qw
    kept_drop(&heard.kept, &sub.account, s)
    return True


cdef bint keep_heard(Subscriber c, HeardInterest *heard, const Subscription *s) noexcept nogil:
    if account_sub(s).told != heard.round:
        return True   # the peer may tell of it again
    return keep(c, heard, &(<Account> sub_account(s)).name, sub_sid(s), s.sid_len, <uint32_t> told_weight(s))


cdef bint subscribe_kept(
    Subscriber c, AccountRegistry registry, HeardInterest *heard, const Slice *account
) noexcept nogil:
    cdef uint32_t at = 0
    cdef Subscription *s = kept_take_new(&heard.kept, registry, &at)
    cdef Subscription *following
    cdef bint subscribed = True
    while s != NULL:
        following = s.next
        heard.sum -= digest_of_sid(sub_sid(s), s.sid_len) * s.qw
        subscribed = subscribed and subscribe_again(c, registry, heard, account, s)
        free(s)
        s = following
        if s == NULL and subscribed:
            s = kept_take_new(&heard.kept, registry, &at)
    return subscribed


cdef bint subscribe_again(
    Subscriber c, AccountRegistry registry, HeardInterest *heard, const Slice *account, const Subscription *s
) noexcept nogil:
    """Handle the RS+ or LS+ that a sid was made of. False: no memory."""
    cdef RemoteInterest whose
    cdef RemoteSub sub
    cdef size_t n = s.sid_len - strlen(b"R ")
    cdef char *line = <char *> malloc(s.sid_len)
    cdef bint subscribed = False
    if line == NULL:
        return False
    whose.kind = sub_sid(s)[0]
    whose.account = account[0]
    memcpy(line, sub_sid(s) + strlen(b"R "), n)
    if read_remote_sub(&sub, &whose, line, n, False) == REMOTE_SUB_OK:
        sub.weight = <int> s.qw
        subscribed = set_kept(c, registry, heard, &sub)
        forget_remote_sub(&sub)
    free(line)
    return subscribed


cdef bint set_kept(
    Subscriber c, AccountRegistry registry, HeardInterest *heard, const RemoteSub *sub
) noexcept nogil:
    """Subscribe in an account that has just been there. False: no memory."""
    cdef void *account = registry.find(sub.account.p, sub.account.n)
    if account == NULL:
        return keep_interest(c, heard, sub) == REMOTE_SUB_OK
    if not may_subscribe(&c.guard, sub.subject.p, sub.subject.n, sub.queue.p, 0):
        return True
    return set_interest(c, <Account> account, heard, sub) != REMOTE_SUB_NO_MEMORY


cdef void forget_kept(HeardInterest *heard, const Slice *account) noexcept nogil:
    cdef Subscription *s = kept_take(&heard.kept, account)
    cdef Subscription *following
    while s != NULL:
        following = s.next
        heard.sum -= digest_of_sid(sub_sid(s), s.sid_len) * s.qw
        free(s)
        s = following


cdef void free_heard(HeardInterest *heard) noexcept nogil:
    kept_free(&heard.kept)


# -- telling all again -------------------------------------------------------------------------------------------------

cdef void hear_again(HeardInterest *heard) noexcept nogil:
    kept_free(&heard.kept)
    heard.sum = 0
    heard.round += 1
    heard.again = 1
    heard.missing = 0


cdef uint64_t end_hearing(Subscriber c, HeardInterest *heard) noexcept nogil:
    cdef Subscription *s
    cdef Subscription *following
    cdef uint32_t i = 0, mask
    cdef uint64_t stale = 0
    heard.again = 0
    while c.subs.n and i <= c.subs.mask:
        mask = c.subs.mask
        s = c.subs.slots[i]
        i += 1
        while s != NULL:
            following = s.next
            if account_sub(s).told != heard.round:
                stale += 1
                unsubscribe(c, s)
                if c.subs.n == 0 or c.subs.mask != mask:
                    i = 0   # the table has shrunk, which has put the others elsewhere
                    break
            s = following
    return stale


cdef void log_unknown_account(Subscriber c, int code, const Slice *account, const Slice *subject) noexcept nogil:
    cdef size_t n = account.n + 1 + subject.n
    cdef char *names = <char *> malloc(n)
    if names == NULL:
        return
    put(names, account.p, account.n)[0] = 0
    put(names + account.n + 1, subject.p, subject.n)
    c.log(code, 0, names, n)
    free(names)


# -- interest that ends ------------------------------------------------------------------------------------------------

cdef RemoteSubOutcome process_remote_unsub(
    Subscriber c, AccountRegistry registry, HeardInterest *heard, const RemoteInterest *whose, char *arg, size_t n
) noexcept nogil:
    cdef RemoteSub sub
    cdef RemoteSubOutcome outcome = read_remote_sub(&sub, whose, arg, n, False)
    cdef Subscription *s
    if outcome == REMOTE_SUB_OK:
        s = subtable_find(&c.subs, sub.sid, sub.sid_n)
        if s != NULL:
            forget_heard(heard, s)
            unsubscribe(c, s)
        elif not drop_kept(heard, &sub) or c.kind == ROUTER:
            if load8(&c.server._debug) and registry.find(sub.account.p, sub.account.n) == NULL:
                log_unknown_account(c, LOG_UNKNOWN_ACCOUNT_UNSUB, &sub.account, &sub.subject)
        forget_remote_sub(&sub)
    return outcome
