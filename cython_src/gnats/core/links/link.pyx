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
    interest_queue_walk,
)
from gnats.core.subjects.sublist cimport InterestSink, Subscription
from gnats.core.subjects.trie cimport Interest, Node
from gnats.includes.atomics cimport exchange8, load8, load_ptr_acquire, store8, store8_release, store_ptr_release
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock

cdef enum:
    SLICE = 1024              # changes to take, or nodes to walk, before looking at what is queued
    TURN_SLICES = 16          # of a walk that are about a turn,
    TURN_LINES = 2048         # and changes written that are one
    WALK_AHEAD = 256 * 1024   # bytes queued for a peer that takes no more; beyond them its walk waits


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
    if not link.begun:
        return
    link.begun = 0   # the registry may be gone when this is called again
    (<AccountRegistry> link.registry).remove_sink(&link.sink)   # nobody else touches the followers from here on
    end_followers(link.unwalked)
    end_followers(link.followers)
    link.unwalked = link.followers = NULL


cdef void end_followers(Follower *follower) noexcept nogil:
    cdef Follower *following
    while follower != NULL:
        following = follower.next
        interest_queue_leave(&follower.followed, (<Account> follower.followed.account).sublist)
        free(follower)
        follower = following


cdef bint link_announce(Subscriber owner, Link *link, Extent extent) noexcept nogil:
    cdef bint incomplete = False, written = True, all = extent == ANNOUNCE_ALL
    cdef uint32_t slices = 0
    cdef uint64_t enough = link.written + TURN_LINES
    if load8(&owner.closing):
        return False
    if load8(&link.lost):
        owner.close_soon(WRITE_ERROR)
        return False
    while written and not incomplete and link_waits(link):
        if not all and owner.out.bytes > owner.gate:
            return True
        if load8(&link.queue.waiting):
            written = write_all(owner, link, interest_queue_take(
                &link.queue, <uint32_t> -1 if all else SLICE, &incomplete), link.write)
            continue
        if not all and owner.want_write and owner.out.bytes > WALK_AHEAD:
            return True   # the peer takes no more at present; what is walked would only wait elsewhere
        if extent == ANNOUNCE_TURN and (slices == TURN_SLICES or link.written >= enough):
            owner.signal_owner()   # others have their turn, and what there is of ours leaves
            return False
        slices += 1
        written = walk_slice(owner, link, &incomplete)
    if not written:
        owner.close_soon(WRITE_ERROR)
    elif incomplete or owner.out.bytes > owner.max_pending:
        owner.close_soon(SLOW_CONSUMER_PENDING_BYTES)
    return False


cdef bint walk_slice(Subscriber owner, Link *link, bint *incomplete) noexcept nogil:
    """Walk through some interest of an account, and queue its lines. False: no memory."""
    cdef Follower *follower
    cdef InterestChange *changes = NULL
    cdef bint written = True, done = False
    pthread_mutex_lock(&(<AccountRegistry> link.registry).lock)
    follower = link.unwalked
    if follower != NULL:   # else the account has been removed meanwhile
        if link.frame != NULL and follower.told == TOLD_NOTHING:
            # The account has no change in the queue: its sink is called once a walk has begun.
            written = link.frame(owner, <Account> follower.followed.account, True)
            follower.told = TOLD_BEGINNING
        changes = interest_queue_walk(
            &follower.followed, (<Account> follower.followed.account).sublist, SLICE, &done, incomplete)
        if done:
            store_ptr_release(<void **> &link.unwalked, follower.next)
            follower.next = link.followers
            link.followers = follower
    pthread_mutex_unlock(&(<AccountRegistry> link.registry).lock)
    written = write_all(owner, link, changes, link.write) and written
    if done and link.frame != NULL and written and not incomplete[0]:
        written = end_account(owner, link)
    return written


cdef bint end_account(Subscriber owner, Link *link) noexcept nogil:
    """Queue the line behind the interest of the account that was walked last, unless it is removed. False: no memory.
    """
    cdef Follower *follower
    cdef bint written = True
    pthread_mutex_lock(&(<AccountRegistry> link.registry).lock)
    follower = link.followers
    if follower != NULL and follower.told == TOLD_BEGINNING:
        written = link.frame(owner, <Account> follower.followed.account, False)
        follower.told = TOLD_ALL
    pthread_mutex_unlock(&(<AccountRegistry> link.registry).lock)
    return written


cdef bint write_all(
    Subscriber owner, Link *link, InterestChange *change,
    bint (*write)(Subscriber owner, const InterestChange *change) noexcept nogil
) noexcept nogil:
    """Write a chain of changes, and free it. False: no memory, and some are not written."""
    cdef InterestChange *following
    cdef bint written = True
    while change != NULL:
        following = change.later
        written = written and write(owner, change)
        link.written += 1
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
    cdef bint incomplete = False, written = True, done
    link_announce(owner, link, ANNOUNCE_ALL)   # finish the walk of a link that has just begun
    interest_queue_init(&all, link.queue.wanted, link.queue.limit, no_wake, link.queue.link)
    all.note = link.queue.note
    interest_queue_keep(&link.queue, True)
    pthread_mutex_lock(&(<AccountRegistry> link.registry).lock)
    follower = link.followers
    while follower != NULL and written and not incomplete:
        interest_queue_follow(
            &all, &sink, (<Account> follower.followed.account).sublist, follower.followed.account, NULL)
        done = False
        while not done and written and not incomplete:
            written = write_all(owner, link, interest_queue_walk(
                &sink, (<Account> follower.followed.account).sublist, SLICE, &done, &incomplete), write)
        interest_queue_leave(&sink, (<Account> follower.followed.account).sublist)
        follower = follower.next
    pthread_mutex_unlock(&(<AccountRegistry> link.registry).lock)
    interest_queue_free(&all)
    link_announce(owner, link, ANNOUNCE_ALL)
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
    untold = exchange8(&link.untold, 0)   # an account that goes meanwhile sets it again
    remove_subs_in(owner, link, NULL)
    return untold


cdef bint link_sum(Link *link, uint64_t *sum) noexcept nogil:
    return interest_queue_sum(&link.queue, sum) and load_ptr_acquire(<void **> &link.unwalked) == NULL


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
    follower.next = link.unwalked
    follower.told = TOLD_NOTHING
    interest_queue_follow(
        &link.queue, &follower.followed, account.sublist, <void *> account, NULL if link.unnamed else &account.name)
    store_ptr_release(<void **> &link.unwalked, follower)


cdef bint follows(const Link *link, const void *account) noexcept nogil:
    """The registry's lock is held."""
    return has_follower(link.unwalked, account) or has_follower(link.followers, account)


cdef bint has_follower(const Follower *follower, const void *account) noexcept nogil:
    while follower != NULL and follower.followed.account != account:
        follower = follower.next
    return follower != NULL


cdef bint stop_following(Link *link, Account account) noexcept nogil:
    """Return as interest_queue_leave(). The registry's lock is held."""
    cdef Follower *follower = take_follower(&link.unwalked, account)
    cdef bint told = False
    if follower == NULL:
        follower = take_follower(&link.followers, account)
    if follower != NULL:
        told = interest_queue_leave(&follower.followed, account.sublist)
        free(follower)
    return told


cdef Follower *take_follower(Follower **at, Account account) noexcept nogil:
    """Take the follower of an account out of a list; NULL: it is not there."""
    cdef Follower *follower
    while at[0] != NULL and at[0].followed.account != <void *> account:
        at = &at[0].next
    follower = at[0]
    if follower != NULL:
        store_ptr_release(<void **> at, follower.next)
    return follower


cdef void gone(AccountSink *sink, Account account) noexcept nogil:
    if stop_following(<Link *> sink, account):
        store8(&(<Link *> sink).untold, 1)
    store8_release(&(<Link *> sink).gone, 1)
    wake((<Link *> sink).owner)
