"""What a link tells the server at its other end; see link.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.registry cimport AccountRegistry, AccountSink
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.accounts.subscriptions cimport sub_account, unsubscribe
from gnats.core.net.connection cimport SLOW_CONSUMER_PENDING_BYTES, WRITE_ERROR
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.interest_queue cimport (
    WANT_LOCAL,
    FollowedAccount,
    InterestChange,
    InterestQueue,
    interest_queue_follow,
    interest_queue_free,
    interest_queue_init,
    interest_queue_keep,
    interest_queue_leave,
    interest_queue_sum,
    interest_queue_take,
)
from gnats.core.subjects.sublist cimport InterestSink, Subscription
from gnats.core.subjects.trie cimport Interest, Node
from gnats.includes.atomics cimport load8, store8, store8_release
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock

cdef enum:
    SLICE = 1024      # changes to take before looking at what is queued


cdef void link_init(
    Link *link, Subscriber owner, AccountRegistry registry, size_t limit,
    bint (*carries)(Subscriber owner, Account account) noexcept nogil,
    bint (*write)(Subscriber owner, const InterestChange *change) noexcept nogil,
    void (*note)(
        InterestSink *sink, const Subscription *s, const Node *node, const Interest *before,
        const Interest *now) noexcept nogil
) noexcept nogil:
    memset(link, 0, sizeof(Link))
    interest_queue_init(&link.queue, WANT_LOCAL, limit, wake, <void *> owner)
    link.queue.note = note
    link.sink.came = came
    link.sink.gone = gone
    link.owner = <void *> owner
    link.registry = <void *> registry
    link.carries = carries
    link.write = write


cdef void link_free(Link *link) noexcept nogil:
    interest_queue_free(&link.queue)


cdef void link_begin(Link *link) noexcept nogil:
    link.begun = 1
    (<AccountRegistry> link.registry).add_sink(&link.sink)


cdef void link_end(Link *link) noexcept nogil:
    cdef Follower *follower
    if not link.begun:
        return
    (<AccountRegistry> link.registry).remove_sink(&link.sink)   # nobody else touches the followers from here on
    while link.followers != NULL:
        follower = link.followers
        link.followers = follower.next
        interest_queue_leave(&follower.followed, (<Account> follower.followed.account).sublist)
        free(follower)


cdef bint link_announce(Subscriber owner, Link *link, bint all) noexcept nogil:
    cdef bint incomplete = False, written = True
    cdef InterestChange *changes
    if load8(&owner.closing):
        return False
    if load8(&link.lost):
        owner.close_soon(WRITE_ERROR)
        return False
    while written and not incomplete and (link_waits(link) or load8(&link.fresh)):
        if not all and owner.out.bytes > owner.gate:
            return True
        if link.frame != NULL:   # no account comes between its beginning and the first changes there
            pthread_mutex_lock(&(<AccountRegistry> link.registry).lock)
            written = begin_accounts(owner, link)
        changes = interest_queue_take(&link.queue, <uint32_t> -1 if all else SLICE, &incomplete)
        if link.frame != NULL:
            pthread_mutex_unlock(&(<AccountRegistry> link.registry).lock)
        written = write_all(owner, changes, link.write) and written
    if link.framed and written and not incomplete:
        written = end_accounts(owner, link)
    if not written:
        owner.close_soon(WRITE_ERROR)
    elif incomplete or owner.out.bytes > owner.max_pending:
        owner.close_soon(SLOW_CONSUMER_PENDING_BYTES)
    return False


cdef bint begin_accounts(Subscriber owner, Link *link) noexcept nogil:
    """Queue the line before the interest of each account that has come. The registry's lock is held. False: no memory.
    """
    cdef Follower *follower = link.followers
    cdef bint written = True
    if not load8(&link.fresh):
        return True
    store8(&link.fresh, 0)
    while follower != NULL and follower.told == TOLD_NOTHING and written:   # new ones stand first
        written = link.frame(owner, <Account> follower.followed.account, True)
        follower.told = TOLD_BEGINNING
        link.framed = 1
        follower = follower.next
    return written


cdef bint end_accounts(Subscriber owner, Link *link) noexcept nogil:
    """Queue the line behind the interest of each account whose first interest has been queued. False: no memory."""
    cdef Follower *follower
    cdef bint written = True
    link.framed = 0
    pthread_mutex_lock(&(<AccountRegistry> link.registry).lock)
    follower = link.followers
    while follower != NULL and follower.told != TOLD_ALL and written:
        if follower.told == TOLD_BEGINNING:
            written = link.frame(owner, <Account> follower.followed.account, False)
            follower.told = TOLD_ALL
        follower = follower.next
    pthread_mutex_unlock(&(<AccountRegistry> link.registry).lock)
    return written


cdef bint write_all(
    Subscriber owner, InterestChange *change,
    bint (*write)(Subscriber owner, const InterestChange *change) noexcept nogil
) noexcept nogil:
    """Write a chain of changes, and free it. False: no memory, and some are not written."""
    cdef InterestChange *following
    cdef bint written = True
    while change != NULL:
        following = change.later
        written = written and write(owner, change)
        free(change)
        change = following
    return written


cdef void no_wake(void *owner) noexcept nogil:
    pass


cdef bint link_walk(
    Subscriber owner, Link *link, bint (*write)(Subscriber owner, const InterestChange *change) noexcept nogil
) noexcept nogil:
    """A second queue gets all interest, while the first one goes on to note what changes meanwhile."""
    cdef InterestQueue all
    cdef FollowedAccount sink
    cdef Follower *follower
    cdef bint incomplete = False, written = True
    interest_queue_init(&all, link.queue.wanted, link.queue.limit, no_wake, link.queue.link)
    all.note = link.queue.note
    interest_queue_keep(&link.queue, True)
    pthread_mutex_lock(&(<AccountRegistry> link.registry).lock)
    follower = link.followers
    while follower != NULL and written and not incomplete:
        interest_queue_follow(
            &all, &sink, (<Account> follower.followed.account).sublist, follower.followed.account, NULL)
        written = write_all(owner, interest_queue_take(&all, <uint32_t> -1, &incomplete), write)
        interest_queue_leave(&sink, (<Account> follower.followed.account).sublist)
        follower = follower.next
    pthread_mutex_unlock(&(<AccountRegistry> link.registry).lock)
    interest_queue_free(&all)
    link_announce(owner, link, True)
    interest_queue_keep(&link.queue, False)
    return written and not incomplete


cdef void link_account_changed(Subscriber owner, Link *link, const Slice *name) noexcept nogil:
    cdef void *account
    cdef bint carried = True
    pthread_mutex_lock(&(<AccountRegistry> link.registry).lock)
    account = find_account(link, name)
    if account != NULL:
        carried = link.carries(owner, <Account> account)
        if carried != follows(link, account):
            if carried:
                came(&link.sink, <Account> account)
            else:
                stop_following(link, <Account> account)
    pthread_mutex_unlock(&(<AccountRegistry> link.registry).lock)
    if not carried:
        remove_subs_in(owner, link, account)


cdef void remove_subs_in(Subscriber owner, Link *link, const void *account) noexcept nogil:
    """Remove the peer's subscriptions in an account; NULL: in all accounts that have been removed."""
    cdef Subscription *s
    cdef Subscription *following
    cdef uint32_t i = 0, mask
    while owner.subs.n and i <= owner.subs.mask:
        mask = owner.subs.mask
        s = owner.subs.slots[i]
        i += 1
        while s != NULL:
            following = s.next
            if goes(link, sub_account(s), account):
                if link.leave != NULL:
                    link.leave(owner, s, account == NULL)
                unsubscribe(owner, s)
                if owner.subs.n == 0 or owner.subs.mask != mask:
                    i = 0   # the table has shrunk, which has put the others elsewhere
                    break
            s = following


cdef inline bint goes(const Link *link, void *of_sub, const void *account) noexcept nogil:
    if account != NULL:
        return of_sub == account
    return find_account(link, &(<Account> of_sub).name) != of_sub


cdef bint link_remove_gone(Subscriber owner, Link *link) noexcept nogil:
    cdef bint untold
    if not load8(&link.gone):
        return False
    store8(&link.gone, 0)
    untold = load8(&link.untold)
    store8(&link.untold, 0)
    remove_subs_in(owner, link, NULL)
    return untold


cdef bint link_sum(Link *link, uint64_t *sum) noexcept nogil:
    return interest_queue_sum(&link.queue, sum)


cdef inline void *find_account(const Link *link, const Slice *name) noexcept nogil:
    return (<AccountRegistry> link.registry).find(name.p, name.n)


cdef void wake(void *owner) noexcept nogil:
    """Have the owner announce what waits: on_signal does."""
    (<Subscriber> owner).signal_owner()


cdef void came(AccountSink *sink, Account account) noexcept nogil:
    cdef Link *link = <Link *> sink
    if link.carries(<Subscriber> link.owner, account):
        follow(link, account)
    store8_release(&link.came, 1)
    wake(link.owner)


cdef void follow(Link *link, Account account) noexcept nogil:
    """The registry's lock is held."""
    cdef Follower *follower = <Follower *> malloc(sizeof(Follower))
    if follower == NULL:
        store8_release(&link.lost, 1)
        return
    follower.next = link.followers
    follower.told = TOLD_NOTHING
    link.followers = follower
    if link.frame != NULL:
        store8_release(&link.fresh, 1)
    interest_queue_follow(
        &link.queue, &follower.followed, account.sublist, <void *> account, NULL if link.unnamed else &account.name)


cdef bint follows(const Link *link, const void *account) noexcept nogil:
    """The registry's lock is held."""
    cdef const Follower *follower = link.followers
    while follower != NULL and follower.followed.account != account:
        follower = follower.next
    return follower != NULL


cdef bint stop_following(Link *link, Account account) noexcept nogil:
    """Return as interest_queue_leave(). The registry's lock is held."""
    cdef bint told = False
    cdef Follower **at = &link.followers
    cdef Follower *follower
    while at[0] != NULL and at[0].followed.account != <void *> account:
        at = &at[0].next
    if at[0] != NULL:
        follower = at[0]
        at[0] = follower.next
        told = interest_queue_leave(&follower.followed, account.sublist)
        free(follower)
    return told


cdef void gone(AccountSink *sink, Account account) noexcept nogil:
    if stop_following(<Link *> sink, account):
        store8(&(<Link *> sink).untold, 1)
    store8_release(&(<Link *> sink).gone, 1)
    wake((<Link *> sink).owner)
