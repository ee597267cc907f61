"""A connection that subscribes and publishes; see subscriber.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.accounts.guard cimport guard_free, guard_init
from gnats.core.auth.permissions cimport Permissions
from gnats.core.messages.mapped_replies cimport mapped_clear
from gnats.core.net.connection cimport Connection
from gnats.core.runtime.clock cimport monotonic_ns, realtime_ns
from gnats.core.runtime.quiesce cimport (
    QsParticipant,
    qs_offline,
    qs_online,
    qs_passed,
    qs_register,
    qs_retire,
    qs_unregister,
)
from gnats.core.subjects.sublist cimport Subscription, sub_row
from gnats.includes.atomics cimport exchange64, load8, load64, loadi64
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock


cdef class Subscriber(Connection):
    """A connection that subscribes and publishes. Python calls its methods on the control loop only."""

    def __cinit__(self, int kind, int fd, *_args, **_session):
        guard_init(&self.guard, kind, &self.lock)
        self.echo = 1

    def __dealloc__(self):
        guard_free(&self.guard)
        if self.mapped_replies != NULL:
            mapped_clear(self.mapped_replies)
            free(self.mapped_replies)
        free(self.details)
        free(self.reap)

    def set_permissions(self, Permissions permissions) -> None:
        """Replace the permissions; None allows everything.

        The owner removes each subscription that is not allowed any more, and sends the client an -ERR for it. It also
        forgets the replies that the client was allowed to publish to. Raises MemoryError.
        """
        self.stage_permissions(permissions)
        self.request(CTL_PERMISSIONS, 0)

    cdef int stage_permissions(self, Permissions permissions) except -1:
        cdef void *current
        cdef void *coming
        cdef void *staged
        cdef uint64_t replaced
        cdef list keep = []
        pthread_mutex_lock(&self.lock)
        current = self.guard.permissions
        coming = self.guard.coming
        staged = self.guard.staged
        replaced = self.guard.replaced
        pthread_mutex_unlock(&self.lock)
        if qs_passed(replaced):
            for kept in self.keep:
                if not isinstance(kept, Permissions) or <void *> kept in (current, coming, staged):
                    keep.append(kept)
            self.keep = keep
        if permissions is not None and not any(kept is permissions for kept in self.keep):
            self.keep.append(permissions)
        pthread_mutex_lock(&self.lock)
        self.guard.staged = NULL if permissions is None else <void *> permissions
        pthread_mutex_unlock(&self.lock)
        return 0

    def renew_imports(self) -> None:
        """Have the owner renew its shadow subscriptions: the account's stream imports have changed."""
        self.request(CTL_IMPORTS, 0)

    def set_details(
        self, bytes head not None, bytes mid not None, bytes tail not None, bytes server not None=b""
    ) -> None:
        """Set the details of this client that services get where an import shares them.

        Each argument holds members of a JSON object, separated by commas; all but `head` begin with a comma. `head`
        goes before the account, `mid` before the round trip time, `tail` after what is said of this server; `server`
        names another one in its place. Raises MemoryError.
        """
        cdef bytes members = head + mid + server + tail
        cdef ClientDetails *d = <ClientDetails *> malloc(sizeof(ClientDetails) + len(members))
        cdef void *old
        if d == NULL:
            raise MemoryError
        d.head_n = len(head)
        d.mid_n = len(mid)
        d.server_n = len(server)
        d.tail_n = len(tail)
        memcpy(d.data, PyBytes_AS_STRING(members), len(members))
        old = <void *> exchange64(<uint64_t *> &self.details, <uint64_t> d)
        if old != NULL:
            qs_retire(old)

    def snapshot(self) -> dict:
        """Return counters for monitoring, each read by itself: together they are no consistent cut.

        `last_activity` is in ns since 1970, `rtt` in ns (0: not measured), sizes are in bytes. `late` is 1 from a
        missed write deadline until the peer has caught up; producers stall while `gate` is less than what is pending.
        """
        cdef uint64_t pending, msgs, size
        pthread_mutex_lock(&self.lock)
        pending = load64(&self.backlog) + self.remote.bytes
        msgs = self.remote_msgs
        size = self.remote_bytes
        pthread_mutex_unlock(&self.lock)
        return {
            "pending_bytes": pending,
            "in_msgs": load64(&self.in_msgs),
            "out_msgs": load64(&self.out_msgs) + msgs,
            "in_bytes": load64(&self.in_bytes),
            "out_bytes": load64(&self.out_bytes) + size,
            "subscriptions": load64(&self.nsubs),
            "last_activity": realtime_ns() - monotonic_ns() + (loadi64(&self.last_in) or self.start_time),
            "rtt": loadi64(&self.rtt),
            "stalls": load64(&self.nstalls),
            "slow": load64(&self.nslow),
            "late": load8(&self.slow),
            "gate": self.gate,
        }

    def subscriptions(self) -> list:
        """Return (subject, queue, sid, delivered, max) of each subscription; an empty list without memory."""
        cdef QsParticipant reader
        cdef Subscription **all = NULL
        cdef Subscription *s
        cdef uint32_t i, n = 0
        cdef list out = []
        # Copy only pointers under the lock: nothing that this reader can see is freed while it is online.
        qs_register(&reader)
        qs_online(&reader)
        pthread_mutex_lock(&self.lock)
        if self.subs.n:
            all = <Subscription **> malloc(self.subs.n * sizeof(Subscription *))
        if all != NULL:
            for i in range(self.subs.mask + 1):
                s = self.subs.slots[i]
                while s != NULL:
                    all[n] = s
                    n += 1
                    s = s.next
        pthread_mutex_unlock(&self.lock)
        try:
            for i in range(n):
                out.append(sub_row(all[i]))
        finally:
            free(all)
            qs_offline(&reader)
            qs_unregister(&reader)
        return out
