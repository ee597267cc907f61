"""Subscriptions of a connection; see subscriptions.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from gnats.core.accounts.account cimport Account, account_imports_streams
from gnats.core.accounts.departures cimport depart, remove_before_subscribing
from gnats.core.accounts.denials cimport report_removed
from gnats.core.accounts.guard cimport guard_filter, guard_install, guard_next, may_subscribe
from gnats.core.accounts.imports cimport (
    add_shadows,
    drop_all_shadows,
    drop_shadows,
    drop_some_shadows,
    forget_requests,
)
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.auth.permissions cimport Permissions
from gnats.core.messages.message cimport NativeSub, native_sub
from gnats.core.net.connection cimport READ_ERROR
from gnats.core.net.log_records cimport TRACE_DELSUB
from gnats.core.runtime.clock cimport monotonic_ns
from gnats.core.runtime.kinds cimport ACCOUNT, GATEWAY, JETSTREAM, LEAF, ROUTER, SYSTEM
from gnats.core.runtime.moment cimport moment_of
from gnats.core.runtime.quiesce cimport qs_retire
from gnats.core.subjects.sublist cimport (
    SL_NO_MEMORY,
    SL_OK,
    SUB_ACCOUNT,
    SUB_NATIVE,
    Subscription,
    sub_new,
    sub_queue,
    sub_sid,
    sub_subject,
)
from gnats.core.subjects.subtable cimport (
    SOME,
    subtable_add,
    subtable_find,
    subtable_remove,
    subtable_take,
    subtable_take_some,
    subtable_text,
)
from gnats.includes.atomics cimport bump64, load32, load64, load8, store32, store64, store8, unlikely
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport NUMBER_ROOM, put_number

cdef enum:
    SLICE = 256                    # subscriptions removed under one lock of the sublist
    MANY = 512                     # more subscriptions than these are not removed in one batch
    NOTED = 32768                  # bytes of a closed connection's subscription list, which monitoring shows


cdef inline void *sub_block(Subscription *s) noexcept nogil:
    """Return the start of its memory block."""
    if s.flags & SUB_NATIVE:
        return native_sub(s)
    return account_sub(s) if s.flags & SUB_ACCOUNT else <void *> s


cdef Subscription *add_sub(
    Subscriber c, Account account, const char *subject, size_t sn, const char *queue, size_t qn,
    const char *sid, size_t n, int *error
) noexcept nogil:
    cdef Subscription *s = sub_new(<void *> c, c.kind, subject, sn, queue, qn, sid, n, 0)
    error[0] = 0
    if s == NULL:
        return NULL
    s.internal = c.kind == SYSTEM or c.kind == JETSTREAM or c.kind == ACCOUNT
    s.qw = note_moment(account, monotonic_ns() if s.internal else c.ps.now)
    return insert_sub(c, account, s, error)


cdef Subscription *add_remote_sub(
    Subscriber c, Account account, const char *subject, size_t sn, const char *queue, size_t qn, uint32_t qw,
    const char *sid, size_t n, int *error
) noexcept nogil:
    cdef Subscription *s = sub_new(<void *> c, c.kind, subject, sn, queue, qn, sid, n, sizeof(AccountSub))
    error[0] = 0
    if s == NULL:
        return NULL
    s.flags = SUB_ACCOUNT
    s.qw = qw
    account_sub(s).account = <void *> account
    account_sub(s).came = note_moment(account, c.ps.now) if c.kind == LEAF else 0
    account_sub(s).told = 0
    return insert_sub(c, account, s, error)


cdef Subscription *add_native_sub(
    Subscriber c, const char *subject, size_t sn, const char *queue, size_t qn, const NativeSub *native, int *error
) noexcept nogil:
    cdef char[NUMBER_ROOM] sid
    cdef size_t n = put_number(sid, c.native_sids + 1) - sid
    cdef Subscription *s = sub_new(
        <void *> c, c.kind, subject, sn, queue, qn, sid, n, sizeof(NativeSub))
    error[0] = 0
    if s == NULL:
        return NULL
    c.native_sids += 1
    s.internal = 1
    s.flags = SUB_NATIVE
    s.qw = note_moment(<Account> c.account, monotonic_ns())
    native_sub(s)[0] = native[0]
    return insert_sub(c, <Account> c.account, s, error)


cdef inline uint32_t note_moment(Account account, int64_t now) noexcept nogil:
    """Note that a subscription comes now; return the moment."""
    cdef uint32_t moment = moment_of(now)
    if load32(&account.newest) != moment:
        store32(&account.newest, moment)
    return moment


cdef Subscription *insert_sub(Subscriber c, Account account, Subscription *s, int *error) noexcept nogil:
    cdef bint added
    remove_before_subscribing()
    error[0] = account.insert(s)
    if error[0] != SL_OK:
        free(sub_block(s))
        if error[0] == SL_NO_MEMORY:
            error[0] = 0
        return NULL
    pthread_mutex_lock(&c.lock)
    added = subtable_add(&c.subs, s)
    pthread_mutex_unlock(&c.lock)
    if not added:
        account.remove(s)
        store8(&s.closed, 1)
        qs_retire(sub_block(s))
        return NULL
    bump64(&c.nsubs, 1)
    # The servers of this cluster and of others make the shadows of their clients themselves.
    if unlikely(account_imports_streams(account)) and c.kind != ROUTER and c.kind != GATEWAY:
        add_shadows(c, account, s, False)
    return s


cdef void unsubscribe(Subscriber c, Subscription *s) noexcept nogil:
    cdef uint32_t i
    pthread_mutex_lock(&c.lock)
    if not subtable_remove(&c.subs, s):
        pthread_mutex_unlock(&c.lock)
        return
    store8(&s.closed, 1)
    for i in range(c.nreap):
        if c.reap[i] == s:
            c.nreap -= 1
            c.reap[i] = c.reap[c.nreap]
            break
    pthread_mutex_unlock(&c.lock)
    if c.trace:
        c.trace_line(TRACE_DELSUB, sub_sid(s), s.sid_len, NULL, 0)
    bump64(&c.nsubs, <uint64_t> -1)
    drop_shadows(c, s)
    if depart(c, <Account> sub_account(s), s):
        return
    (<Account> sub_account(s)).remove(s)
    forget_requests(c, <Account> sub_account(s), s)
    qs_retire(sub_block(s))


cdef void unsubscribe_exhausted(Subscriber c) noexcept nogil:
    cdef Subscription **reap
    cdef uint32_t i, n
    pthread_mutex_lock(&c.lock)
    reap = c.reap
    n = c.nreap
    c.reap = NULL
    c.nreap = c.reap_cap = 0
    pthread_mutex_unlock(&c.lock)
    for i in range(n):
        unsubscribe(c, reap[i])
    free(reap)


cdef void apply_permissions(Subscriber c) noexcept nogil:
    cdef Subscription **removed = NULL
    cdef Subscription *s
    cdef uint32_t i, n = 0
    cdef bint filtered = False
    guard_next(&c.guard)
    if not guard_install(&c.guard, 0):
        c.out_of_memory(READ_ERROR)
    if c.guard.permissions == NULL or load8(&c.closing):
        return
    if c.subs.n:
        removed = <Subscription **> malloc(c.subs.n * sizeof(Subscription *))
        if removed == NULL:
            c.out_of_memory(READ_ERROR)
            return
        for i in range(c.subs.mask + 1):
            s = c.subs.slots[i]
            while s != NULL:
                if may_subscribe(&c.guard, sub_subject(s), s.subject_len, sub_queue(s), s.queue_len):
                    filtered = filtered or (<Permissions> c.guard.permissions).needs_filter(
                        sub_subject(s), s.subject_len, s.queue_len)
                else:
                    removed[n] = s
                    n += 1
                s = s.next
    guard_filter(&c.guard, filtered)
    for i in range(n):
        if load8(&c.closing):
            break
        unsubscribe(c, removed[i])
        report_removed(c, removed[i])
    free(removed)


cdef void remove_all_subs(Subscriber c) noexcept nogil:
    """Remove in slices: a writer that holds the sublist's lock for long holds up every poller."""
    cdef Subscription *chain
    cdef Subscription *s
    cdef Subscription *some[SLICE]
    cdef size_t n
    pthread_mutex_lock(&c.lock)
    chain = subtable_take(&c.subs)
    s = chain
    while s != NULL:
        store8(&s.closed, 1)
        s = s.next
    c.nreap = 0
    store64(&c.nsubs, 0)
    pthread_mutex_unlock(&c.lock)
    drop_all_shadows(c)
    while chain != NULL:
        n = 0
        while chain != NULL and n < SLICE:
            some[n] = chain
            chain = chain.next
            n += 1
        take_out(c, some, n)


cdef void take_out(Subscriber c, Subscription **subs, size_t n) noexcept nogil:
    cdef void *account
    cdef size_t i, first = 0, end, staying = 0
    for i in range(n):
        if not depart(c, <Account> sub_account(subs[i]), subs[i]):
            subs[staying] = subs[i]
            staying += 1
    while first < staying:
        account = sub_account(subs[first])
        end = first + 1
        while end < staying and sub_account(subs[end]) == account:
            end += 1
        (<Account> account).remove_batch(subs + first, end - first)
        for i in range(first, end):
            forget_requests(c, <Account> account, subs[i])
            qs_retire(sub_block(subs[i]))
        first = end


cdef bint end_subscriptions(Subscriber c) noexcept nogil:
    c.last_nsubs = load64(&c.nsubs)
    if c.fd >= 0:   # the server's own subscribers remove theirs at once
        c.last_subs = subtable_text(&c.subs, NOTED, &c.last_subs_len)
        if <uint64_t> c.subs.n + c.shadows.n > MANY and not load8(&c.ps.hurry):
            return True
    remove_all_subs(c)
    return False


cdef bint remove_some_subs(Subscriber c) noexcept nogil:
    cdef Subscription *some[SOME]
    cdef size_t i, n
    if c.shadows.n:
        drop_some_shadows(c)
    else:
        pthread_mutex_lock(&c.lock)
        n = subtable_take_some(&c.subs, &c.leaving_at, some)
        for i in range(n):
            store8(&some[i].closed, 1)
        store64(&c.nsubs, c.subs.n)
        pthread_mutex_unlock(&c.lock)
        take_out(c, some, n)
    return c.shadows.n != 0 or c.subs.n != 0


# ---- for tests ----

def subscribe_in(
    Subscriber c not None, Account account not None, bytes subject not None, bytes queue not None, bytes sid not None,
) -> None:
    """Subscribe in any account, as a route does. Raises ValueError for an invalid subject, MemoryError."""
    cdef int error
    cdef Subscription *s = add_remote_sub(
        c, account, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), PyBytes_AS_STRING(queue),
        PyBytes_GET_SIZE(queue), 1, PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid), &error)
    if s == NULL:
        raise MemoryError if error == 0 else ValueError(f"invalid subject {subject!r}")


def unsubscribe_sid(Subscriber c not None, bytes sid not None) -> Account:
    """Undo subscribe_in() and return the account. Raises KeyError for an unknown sid."""
    cdef Subscription *s = subtable_find(&c.subs, PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid))
    if s == NULL:
        raise KeyError(sid)
    account = <Account> sub_account(s)
    unsubscribe(c, s)
    return account
