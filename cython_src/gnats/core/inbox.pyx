"""The control plane's inbox; see inbox.pxd."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.quiesce cimport qs_advance, qs_passed
from gnats.includes.atomics cimport load64, store64
from gnats.includes.linux cimport EFD_CLOEXEC, EFD_NONBLOCK, close, errno, eventfd, eventfd_read, eventfd_write
from gnats.includes.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)


cdef class Inbox:
    """One server's queue of events from its pollers.

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
        cdef Event *ev = self.head
        cdef Event *following
        while ev != NULL:
            following = ev.next
            free(ev)
            ev = following
        if self.evfd >= 0:
            close(self.evfd)
        pthread_mutex_destroy(&self.lock)

    cdef Event *new_event(self, uint32_t kind, void *client, size_t len) noexcept nogil:
        cdef Event *ev = <Event *> malloc(sizeof(Event) + len)
        if ev != NULL:
            ev.next = NULL
            ev.client = client
            ev.a = ev.b = 0
            ev.kind = kind
            ev.len = len
        return ev

    cdef void post(self, Event *ev) noexcept nogil:
        cdef bint was_empty
        pthread_mutex_lock(&self.lock)
        was_empty = self.head == NULL
        if was_empty:
            self.head = ev
        else:
            self.tail.next = ev
        self.tail = ev
        store64(&self.queued, load64(&self.queued) + 1)
        pthread_mutex_unlock(&self.lock)
        if was_empty:
            eventfd_write(self.evfd, 1)

    cdef void post_data(
        self, uint32_t kind, void *client, int64_t a, int64_t b, const char *data, size_t len
    ) noexcept nogil:
        cdef Event *ev = self.new_event(kind, client, len)
        if ev == NULL:
            return
        ev.a = a
        ev.b = b
        if len:
            memcpy(ev.data, data, len)
        self.post(ev)

    def fileno(self) -> int:
        """The eventfd: readable when drain() has something to return."""
        return self.evfd

    def __len__(self) -> int:
        return load64(&self.queued)

    def close(self) -> None:
        """Close the descriptor; nothing may post any more."""
        if self.evfd >= 0:
            close(self.evfd)
            self.evfd = -1

    def drain(self, Py_ssize_t most=1024) -> list:
        """Up to `most` events, in order, as (event, client, a, b, data); fileno() stays readable when there are more.

        `data` is bytes; for EV_MSG it is (subject, reply, header, payload, asker, account, sid). A closed client
        stays alive here until no poller can hold a pointer to it.
        """
        cdef Event *ev
        cdef uint64_t value
        cdef list out = []
        cdef object client, data
        cdef Py_ssize_t passed = 0
        # only what is buried already: an event that is taken now may name a client closed by an earlier one
        while passed < len(self.graveyard) and qs_passed((<tuple> self.graveyard[passed])[0]):
            passed += 1
        if self.evfd >= 0:
            eventfd_read(self.evfd, &value)
        while len(out) < most:
            pthread_mutex_lock(&self.lock)
            ev = self.head
            if ev != NULL:
                self.head = ev.next
                if self.head == NULL:
                    self.tail = NULL
                store64(&self.queued, load64(&self.queued) - 1)
            pthread_mutex_unlock(&self.lock)
            if ev == NULL:
                break
            client = <object> ev.client if ev.client != NULL else None
            data = message_parts(ev) if ev.kind == EV_MSG else PyBytes_FromStringAndSize(ev.data, ev.len)
            out.append((ev.kind, client, ev.a, ev.b, data))
            if ev.kind == EV_CLOSED:
                self.named.discard(client)
                self.graveyard.append((qs_advance(), client))
            free(ev)
        if len(out) == most and self.evfd >= 0:
            eventfd_write(self.evfd, 1)
        del self.graveyard[:passed]
        return out


cdef tuple message_parts(Event *ev):
    cdef const char *p = ev.data
    cdef list parts = []
    cdef int i
    for i in range(MSG_PARTS):
        parts.append(PyBytes_FromStringAndSize(p, ev.part[i]))
        p += ev.part[i]
    parts.append(PyBytes_FromStringAndSize(p, ev.len - (p - ev.data)))
    return tuple(parts)
