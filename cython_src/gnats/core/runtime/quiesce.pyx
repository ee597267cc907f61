"""Quiescent-state reclamation; see quiesce.pxd. (The scheme is McKenney's QSBR as liburcu describes it.)"""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc

from gnats.includes.atomics cimport add64, add64_seq, fence, load64, load64_seq, store64, store64_release, store64_seq
from gnats.includes.pthread cimport (
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_trylock,
    pthread_mutex_unlock,
)

cdef enum:
    BATCH = 63


cdef struct Retired:
    uint64_t number
    void *block
    size_t size
    void (*release)(void *, size_t) noexcept nogil    # NULL: free


cdef struct Limbo:
    # retired memory, oldest first; its grace numbers never decrease
    Limbo *next
    uint64_t n
    uint64_t first
    Retired at[BATCH]


cdef pthread_mutex_t lock
cdef QsParticipant *participants = NULL
cdef Limbo *oldest = NULL
cdef Limbo *newest = NULL
cdef uint64_t epoch = 1    # atomic; 0 means offline, so it starts at 1
cdef uint64_t waiting = 0  # blocks in limbo; atomic

pthread_mutex_init(&lock, NULL)


cdef void qs_register(QsParticipant *participant) noexcept nogil:
    global participants
    store64(&participant.seen, 0)
    pthread_mutex_lock(&lock)
    participant.next = participants
    participants = participant
    pthread_mutex_unlock(&lock)


cdef void qs_unregister(QsParticipant *participant) noexcept nogil:
    cdef QsParticipant **link
    pthread_mutex_lock(&lock)
    link = &participants
    while link[0] != NULL:
        if link[0] == participant:
            link[0] = participant.next
            break
        link = &link[0].next
    pthread_mutex_unlock(&lock)


cdef void qs_online(QsParticipant *participant) noexcept nogil:
    # Two fences face each other. We store `seen`, fence, then read shared structures. The reclaimer's side unlinks a
    # block, fences, then reads `seen`. One fence comes first: either the reclaimer sees us online, or we see that the
    # block is unlinked. (The store alone does not order it: C11 lets later reads that are not sequentially consistent
    # overtake it.)
    store64_seq(&participant.seen, load64_seq(&epoch))
    fence()


cdef void qs_offline(QsParticipant *participant) noexcept nogil:
    store64_release(&participant.seen, 0)


cdef uint64_t qs_advance() noexcept nogil:
    fence()   # see qs_online
    return add64_seq(&epoch, 1) + 1


cdef uint64_t horizon() noexcept nogil:
    # The largest grace number that has passed. The lock is held.
    cdef uint64_t least, seen
    cdef QsParticipant *participant = participants
    fence()   # see qs_online
    least = load64_seq(&epoch)
    while participant != NULL:
        seen = load64_seq(&participant.seen)
        if seen != 0 and seen < least:
            least = seen
        participant = participant.next
    return least


cdef bint qs_passed(uint64_t number) noexcept nogil:
    cdef bint passed
    pthread_mutex_lock(&lock)
    passed = horizon() >= number
    pthread_mutex_unlock(&lock)
    return passed


cdef void qs_retire(void *block) noexcept nogil:
    qs_retire_with(block, 0, NULL)


cdef void qs_retire_with(void *block, size_t size, void (*release)(void *, size_t) noexcept nogil) noexcept nogil:
    cdef Limbo *page
    cdef Retired *at
    global oldest, newest
    pthread_mutex_lock(&lock)
    page = newest
    if page == NULL or page.n == BATCH:
        page = <Limbo *> malloc(sizeof(Limbo))
        if page == NULL:
            # Leak the block: any participant may be reading it.
            pthread_mutex_unlock(&lock)
            return
        page.next = NULL
        page.n = 0
        page.first = 0
        if newest == NULL:
            oldest = page
        else:
            newest.next = page
        newest = page
    at = &page.at[page.n]
    at.block = block
    at.size = size
    at.release = release
    at.number = qs_advance()
    page.n += 1
    add64(&waiting, 1)
    pthread_mutex_unlock(&lock)


cdef void qs_reclaim() noexcept nogil:
    cdef Limbo *page
    cdef Retired *at
    cdef uint64_t safe, freed = 0
    global oldest, newest
    if load64(&waiting) == 0 or pthread_mutex_trylock(&lock) != 0:
        return
    safe = horizon()
    page = oldest
    while page != NULL and page.first < page.n and page.at[page.first].number <= safe:
        at = &page.at[page.first]
        if at.release == NULL:
            free(at.block)
        else:
            at.release(at.block, at.size)
        freed += 1
        page.first += 1
        if page.first == page.n:
            oldest = page.next
            if oldest == NULL:
                newest = NULL
            free(page)
            page = oldest
    add64(&waiting, <uint64_t> 0 - freed)
    pthread_mutex_unlock(&lock)


def advance() -> int:
    """Return a grace number for passed(): a participant online now may hold pointers to what was reachable before."""
    return qs_advance()


def passed(uint64_t number) -> bool:
    """Return whether every participant has been offline since advance() returned `number`."""
    return qs_passed(number)


def waiting_blocks() -> int:
    """Return the number of blocks that are retired and not freed (for tests)."""
    return load64(&waiting)


def reclaim() -> None:
    """Free the blocks that have become safe (for tests)."""
    qs_reclaim()
