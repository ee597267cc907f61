"""The accounts of a server by name (the `accounts` of server.go), for any thread.

The control plane adds and removes accounts. A poller looks accounts up without a lock, since a route names the account
of each message that it brings. Links to other servers are sinks, called when an account is added or removed.

A table never changes under a reader: entries are added at the front of their chains, and what is taken out is retired
(core.runtime.quiesce). To grow, the writer makes a new table with entries of its own.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from gnats.core.accounts.account cimport Account
from gnats.includes.pthread cimport pthread_mutex_t


cdef struct AccountEntry:
    AccountEntry *next       # in its bucket; atomic
    uint32_t hash
    uint32_t name_len
    void *account            # borrowed Account; AccountRegistry.accounts keeps it alive
    char name[1]


cdef struct AccountTable:
    uint32_t mask            # number of buckets - 1
    AccountEntry *slots[1]   # atomic


# A sink: functions called for every account that is added or removed. Its owner embeds it.
cdef struct AccountSink:
    AccountSink *next
    # Called with the registry's lock held: it may take only locks below that in docs/locks.md.
    void (*came)(AccountSink *sink, Account account) noexcept nogil
    void (*gone)(AccountSink *sink, Account account) noexcept nogil


cdef class AccountRegistry:
    cdef pthread_mutex_t lock
    cdef AccountTable *table       # changed under the lock; atomic
    cdef uint32_t n                # accounts; like `sinks` under the lock
    cdef AccountSink *sinks
    cdef readonly dict accounts    # by name; the control loop's

    # Return a borrowed Account, NULL when there is none. The caller is in a batch, and may use it until the batch ends.
    cdef void *find(self, const char *name, size_t n) noexcept nogil
    # Add a sink. Call it for each present account once, then for each change. Without the GIL.
    cdef void add_sink(self, AccountSink *sink) noexcept nogil
    # Remove a sink; it is not called any more when this returns. Without the GIL.
    cdef void remove_sink(self, AccountSink *sink) noexcept nogil
