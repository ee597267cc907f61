"""Which account behind a link an event is charged to; see charges.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memchr, strlen

from gnats.core.accounts.account cimport Account, account_charge
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.message cimport Message
from gnats.core.runtime.kinds cimport GATEWAY, ROUTER
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.subject cimport hash_bytes
from gnats.includes.atomics cimport load8

cdef extern from "<string.h>" nogil:
    const void *memmem(const void *text, size_t n, const void *part, size_t part_n)

cdef const char *REQUESTER = b"\nNats-Request-Info:"
cdef const char *NAME = b'"acc":"'   # not in a string: there, quotes follow a backslash


cdef uint32_t charged_account(const Message *m) noexcept nogil:
    cdef uint8_t kind = (<Subscriber> m.origin).kind
    cdef Slice name
    if kind != ROUTER and kind != GATEWAY:   # what a leaf node causes is of one account
        return 0
    if load8(&(<Account> m.account)._is_system):
        name = requester_of(m)
        if name.n:
            return hash_bytes(name.p, name.n) | 1
    return account_charge(<Account> m.account)


cdef Slice requester_of(const Message *m) noexcept nogil:
    """Return the name of the account in the last Nats-Request-Info of a message, a JSON string; n is 0 without one."""
    cdef const char *p = m.data
    cdef const char *end = m.data + m.hdr
    cdef const char *last = NULL
    cdef Slice name
    name.p = NULL
    name.n = 0
    while p != NULL:
        p = <const char *> memmem(p, end - p, REQUESTER, strlen(REQUESTER))
        if p != NULL:
            p += strlen(REQUESTER)
            last = p
    if last != NULL:
        p = <const char *> memmem(last, end - last, NAME, strlen(NAME))
        if p != NULL:
            p += strlen(NAME)
            last = <const char *> memchr(p, c'"', end - p)
            if last != NULL:
                name.p = <char *> p - 1     # with its quotes, as Account.info_name
                name.n = last - p + 2
    return name
