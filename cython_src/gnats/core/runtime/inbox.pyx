"""The control plane's inbox; see inbox.pxd."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from gnats.core.runtime.quiesce cimport qs_advance, qs_passed
from gnats.includes.atomics cimport load32, load64, store32, store64
from gnats.includes.linux cimport EFD_CLOEXEC, EFD_NONBLOCK, close, errno, eventfd, eventfd_read, eventfd_write
from gnats.includes.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)

cdef extern from * nogil:
    """
    static __thread void *gnats_reading;   /* Source of the connection whose input this thread handles */
    #define gnats_set_reading(s) (gnats_reading = (s))
    #define gnats_get_reading() (gnats_reading)
    """
    void set_reading "gnats_set_reading"(void *source)
    void *get_reading "gnats_get_reading"()

cdef enum:
    DRAINED_BYTES = 1024 * 1024    # bytes of data that one drain() returns, exceeded by one event at most


cdef void inbox_reading(Source *source) noexcept nogil:
    set_reading(source)


cdef void inbox_divide(Source *link) noexcept nogil:
    cdef Shares *shares = <Shares *> calloc(1, sizeof(Shares))
    cdef size_t i
    if shares == NULL:
        return
    shares.link = link
    for i in range(SHARES + 1):
        shares.all[i].shares = shares
    link.shares = shares


cdef inline bint is_control(const Event *ev) noexcept nogil:
    return ev.kind == EV_CONNECT or ev.kind == EV_INFO or ev.kind == EV_CLOSED


cdef inline void discard(Event *ev) noexcept nogil:
    free(ev.more)
    ev.more = NULL
    if not ev.lent:
        free(ev)


cdef class Inbox:
    """One server's queues of events from its pollers.

    Raises OSError when no eventfd can be had.
    """

    def __cinit__(self):
        self.evfd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        if self.evfd < 0:
            raise OSError(errno, "cannot create an eventfd for the inbox")
        pthread_mutex_init(&self.lock, NULL)
        self.named = set()
        self.graveyard = []

    def __dealloc__(self):
        # Connections have dropped their own events: a connection lives as long as its events.
        free_events(&self.own)
        if self.evfd >= 0:
            close(self.evfd)
        pthread_mutex_destroy(&self.lock)

    # -- posting -----------------------------------------------------------------------------------------------------

    cdef Event *new_event(self, uint32_t kind, void *client, Source *about, size_t len) noexcept nogil:
        cdef Event *ev = <Event *> malloc(sizeof(Event) + len)
        if ev != NULL:
            ev.next = NULL
            ev.client = client
            ev.about = about
            ev.a = ev.b = 0
            ev.more = NULL
            ev.kind = kind
            ev.lent = ev.may_drop = 0
            ev.len = len
            ev.size = sizeof(Event) + len
        return ev

    cdef void post(self, Event *ev) noexcept nogil:
        cdef Source *reading = <Source *> get_reading()
        ev.payer = reading if reading != NULL and not is_control(ev) else ev.about
        enqueue(self, ev, ev.about, 0)

    cdef bint post_caused(self, Event *ev, Source *causer, uint32_t account) noexcept nogil:
        cdef Source *reading = <Source *> get_reading()
        ev.payer = reading if reading != NULL else causer
        ev.may_drop = 1
        return enqueue(self, ev, NULL, account)

    cdef bint post_data(
        self, uint32_t kind, void *client, Source *about, int64_t a, int64_t b, const char *data, size_t len
    ) noexcept nogil:
        cdef Event *ev = self.new_event(kind, client, about, len)
        if ev == NULL:
            return False
        ev.a = a
        ev.b = b
        if len:
            memcpy(ev.data, data, len)
        self.post(ev)
        return True

    cdef Event *jetstream_event(self, void *what, size_t len) noexcept nogil:
        return self.new_event(EV_JETSTREAM, what, &self.own, len)

    cdef void post_jetstream(self, void *what, int64_t a, int64_t b, const char *data, size_t len) noexcept nogil:
        self.post_data(EV_JETSTREAM, what, &self.own, a, b, data, len)

    cdef bint park(self, Source *payer) noexcept nogil:
        cdef bint over
        if not over_bound(self, payer):
            return False
        pthread_mutex_lock(&self.lock)
        over = payer.resume != NULL and over_bound(self, payer)
        if over and not payer.parked:
            payer.parked = 1
            store64(&self.parked, load64(&self.parked) + 1)
            store64(&self.parkings, load64(&self.parkings) + 1)
        pthread_mutex_unlock(&self.lock)
        return over

    cdef Source *owe(self, Source *causer, uint32_t events, size_t size) noexcept nogil:
        cdef Source *payer = <Source *> get_reading()
        if payer == NULL:
            payer = causer
        pthread_mutex_lock(&self.lock)
        if payer.resume == NULL and (payer.n >= INTERNAL_EVENTS or payer.bytes >= INTERNAL_BYTES):
            store64(&self.dropped, load64(&self.dropped) + 1)
            payer = NULL
        else:
            store32(&payer.n, payer.n + events)
            store64(&payer.bytes, payer.bytes + size)
            store32(&payer.named, payer.named + 1)
        pthread_mutex_unlock(&self.lock)
        return payer

    cdef void settle(self, Source *payer, uint32_t events, size_t size) noexcept nogil:
        cdef bint go_on
        pthread_mutex_lock(&self.lock)
        store32(&payer.n, payer.n - events)
        store64(&payer.bytes, payer.bytes - size)
        go_on = unpark(self, payer)
        pthread_mutex_unlock(&self.lock)
        if go_on:
            payer.resume(payer.owner)
        pthread_mutex_lock(&self.lock)
        store32(&payer.named, payer.named - 1)   # the payer may be deallocated from here on
        pthread_mutex_unlock(&self.lock)

    cdef void forget(self, Source *source) noexcept nogil:
        cdef Shares *shares = source.shares
        cdef size_t i
        pthread_mutex_lock(&self.lock)
        leave(self, source)
        if shares != NULL:
            for i in range(SHARES + 1):
                leave(self, &shares.all[i])
        if source.parked:
            store64(&self.parked, load64(&self.parked) - 1)
        pthread_mutex_unlock(&self.lock)
        free_events(source)
        if shares != NULL:
            for i in range(SHARES + 1):
                free_events(&shares.all[i])
        source.shares = NULL
        free(shares)

    # -- for the control loop ----------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Return the eventfd: readable when drain() has something to return."""
        return self.evfd

    def __len__(self) -> int:
        return load64(&self.queued)

    @property
    def dropped(self) -> int:
        """Events dropped since the start: too many of one of the server's own clients, or of an account, waited."""
        return load64(&self.dropped)

    @property
    def names_jetstream(self) -> bool:
        """Whether an event that waits names a stream or a consumer."""
        return load32(&self.own.named) != 0

    def stats(self) -> dict:
        """Return `events`, their `bytes` and `parked` connections now; `parkings` and `dropped` since the start."""
        return {
            "events": load64(&self.queued),
            "bytes": load64(&self.bytes),
            "parked": load64(&self.parked),
            "parkings": load64(&self.parkings),
            "dropped": load64(&self.dropped),
        }

    def close(self) -> None:
        """Close the descriptor. Nothing may post any more."""
        if self.evfd >= 0:
            close(self.evfd)
            self.evfd = -1

    def drain(self, Py_ssize_t most=64) -> list:
        """Return up to `most` events as (kind, client, a, b, data), each connection's in order; fewer when large.

        fileno() stays readable when more wait. `data` is bytes; for EV_MSG it is (subject, reply, header, payload,
        requester, account, sid), all bytes. It is None when there was no memory for it. The inbox keeps a closed client
        alive until no poller can hold a pointer to it.
        """
        cdef Event *ev
        cdef Source *resumed
        cdef uint64_t value
        cdef list out = []
        cdef object client, data
        cdef size_t size = 0
        bury(self)
        if self.evfd >= 0:
            eventfd_read(self.evfd, &value)
        while len(out) < most and size < DRAINED_BYTES:
            ev = take(self, &resumed)
            if ev == NULL:
                return out
            size += ev.len
            client = <object> ev.client if ev.client != NULL else None
            try:
                data = message_parts(ev) if ev.kind == EV_MSG else PyBytes_FromStringAndSize(
                    ev.more if ev.more != NULL else ev.data, ev.len)
            except MemoryError:
                data = None    # the event itself must not be lost
            out.append((ev.kind, client, ev.a, ev.b, data))
            if ev.kind == EV_CLOSED:
                self.named.discard(client)
                self.graveyard.append((qs_advance(), client, <size_t> ev.about))
            discard(ev)
            if resumed != NULL:
                resumed.resume(resumed.owner)
        if load64(&self.queued) and self.evfd >= 0:
            eventfd_write(self.evfd, 1)
        return out


cdef bury(Inbox inbox):
    """Release the closed clients that no poller and no event names any more.

    Only those buried by an earlier drain(): an event of this one may name a client that it has just closed.
    """
    cdef list kept = []
    cdef Source *source
    cdef Py_ssize_t seen = 0
    if not inbox.graveyard:
        return
    for number, client, address in inbox.graveyard:
        source = <Source *> <size_t> address
        if not qs_passed(number):
            break
        seen += 1
        if load32(&source.named):
            kept.append((number, client, address))
    inbox.graveyard[:seen] = kept


cdef bint over_bound(Inbox inbox, Source *payer) noexcept nogil:
    return load32(&payer.n) and (
        load32(&payer.n) > SOURCE_EVENTS or load64(&payer.bytes) > SOURCE_BYTES or inbox_full(inbox))


cdef inline bint may_go_on(Inbox inbox, Source *payer) noexcept nogil:
    return not payer.n or (
        payer.n <= SOURCE_EVENTS // 2 and payer.bytes <= SOURCE_BYTES // 2 and not inbox_full(inbox))


cdef bint unpark(Inbox inbox, Source *payer) noexcept nogil:
    """Unpark a payer if it may be read again; return whether it was. The lock is held."""
    if not payer.parked or not may_go_on(inbox, payer):
        return False
    payer.parked = 0
    store64(&inbox.parked, inbox.parked - 1)
    return True


cdef inline void join(SourceQueue *sources, Source *source) noexcept nogil:
    source.next = NULL
    if sources.head == NULL:
        sources.head = source
    else:
        sources.tail.next = source
    sources.tail = source


cdef void leave(Inbox inbox, Source *source) noexcept nogil:
    """Take a source with all its events out of the sources that wait. The lock is held."""
    cdef SourceQueue *sources
    cdef Source **at
    cdef Source *last = NULL
    cdef Event *ev = source.head
    if ev == NULL:
        return
    sources = &inbox.waiting[is_control(ev)]
    at = &sources.head
    while at[0] != source:
        last = at[0]
        at = &last.next
    at[0] = source.next
    if sources.tail == source:
        sources.tail = last
    while ev != NULL:   # only count: the clients that these events name may be gone
        store64(&inbox.queued, inbox.queued - 1)
        store64(&inbox.bytes, inbox.bytes - ev.size)
        ev = ev.next


cdef inline Shares *shares_with(const Source *payer) noexcept nogil:
    """Return the shares of a link if a payer is one of them, else NULL."""
    return payer.shares if payer.shares != NULL and payer.shares.link != payer else NULL


cdef bint over_share(const Source *payer) noexcept nogil:
    """Return whether a payer that cannot be parked pays for as much as it may. The lock is held."""
    cdef Shares *shares = shares_with(payer)
    if shares == NULL:
        return payer.n >= INTERNAL_EVENTS or payer.bytes >= INTERNAL_BYTES
    # One event in any case, however large.
    return payer.n and (payer.n + shares.n >= LINK_EVENTS or payer.bytes + shares.bytes >= LINK_BYTES)


cdef Source *share_of(Shares *shares, uint32_t account) noexcept nogil:
    """Return an account's share of a link. The lock is held."""
    cdef size_t i
    for i in range(SHARES):
        if shares.keys[i] == account:
            return &shares.all[i]
    for i in range(SHARES):
        if shares.all[i].n == 0:
            shares.keys[i] = account
            return &shares.all[i]
    return &shares.all[SHARES]


cdef inline void charge(Source *payer, int64_t events, int64_t size) noexcept nogil:
    """Charge events to a payer, or undo that. The lock is held."""
    cdef Shares *shares = shares_with(payer)
    store32(&payer.n, <uint32_t> (payer.n + events))
    store64(&payer.bytes, <uint64_t> (<int64_t> payer.bytes + size))
    store32(&payer.named, <uint32_t> (payer.named + events))
    if shares != NULL:
        shares.n = <uint32_t> (shares.n + events)
        shares.bytes = <uint64_t> (<int64_t> shares.bytes + size)
        store32(&shares.link.named, <uint32_t> (shares.link.named + events))


cdef bint enqueue(Inbox inbox, Event *ev, Source *queue, uint32_t account) noexcept nogil:
    """Put an event into a queue, NULL: its payer's, and charge it. False: it was dropped."""
    cdef bint first
    pthread_mutex_lock(&inbox.lock)
    if account and ev.payer.shares != NULL:
        ev.payer = share_of(ev.payer.shares, account)
    if queue == NULL:
        queue = ev.payer
    if ev.may_drop and ev.payer.resume == NULL and over_share(ev.payer):
        store64(&inbox.dropped, load64(&inbox.dropped) + 1)
        pthread_mutex_unlock(&inbox.lock)
        discard(ev)
        return False
    first = load64(&inbox.queued) == 0
    if queue.head == NULL:
        queue.head = ev
        join(&inbox.waiting[is_control(ev)], queue)
    else:
        queue.tail.next = ev
    queue.tail = ev
    charge(ev.payer, 1, <int64_t> ev.size)
    store32(&ev.about.named, ev.about.named + 1)
    store64(&inbox.queued, inbox.queued + 1)
    store64(&inbox.bytes, inbox.bytes + ev.size)
    pthread_mutex_unlock(&inbox.lock)
    if first:
        eventfd_write(inbox.evfd, 1)
    return True


cdef inline void uncharge(Inbox inbox, Event *ev) noexcept nogil:
    """Undo the charge of an event. The lock is held."""
    charge(ev.payer, -1, -<int64_t> ev.size)
    store32(&ev.about.named, ev.about.named - 1)
    store64(&inbox.queued, inbox.queued - 1)
    store64(&inbox.bytes, inbox.bytes - ev.size)


cdef Event *take(Inbox inbox, Source **resumed) noexcept nogil:
    """Take out the next event, NULL: none. resumed[0]: its payer, if that was unparked by this."""
    cdef SourceQueue *sources
    cdef Source *queue
    cdef Event *ev = NULL
    resumed[0] = NULL
    pthread_mutex_lock(&inbox.lock)
    inbox.served ^= 1
    if inbox.waiting[inbox.served].head == NULL:
        inbox.served ^= 1
    sources = &inbox.waiting[inbox.served]
    queue = sources.head
    if queue != NULL:
        sources.head = queue.next
        ev = queue.head
        queue.head = ev.next
        if queue.head != NULL:
            join(&inbox.waiting[is_control(queue.head)], queue)
        else:
            queue.tail = NULL
        uncharge(inbox, ev)
        if unpark(inbox, ev.payer):
            resumed[0] = ev.payer
    pthread_mutex_unlock(&inbox.lock)
    return ev


cdef void free_events(Source *source) noexcept nogil:
    cdef Event *ev = source.head
    cdef Event *following
    source.head = source.tail = NULL
    while ev != NULL:
        following = ev.next
        discard(ev)
        ev = following


cdef tuple message_parts(Event *ev):
    cdef const char *p = ev.data
    cdef list parts = []
    cdef int i
    for i in range(MSG_PARTS):
        parts.append(PyBytes_FromStringAndSize(p, ev.part[i]))
        p += ev.part[i]
    parts.append(PyBytes_FromStringAndSize(p, ev.len - (p - ev.data)))
    return tuple(parts)
