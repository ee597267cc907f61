"""Subscriptions whose removal is put off; see departures.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t
from libc.stdlib cimport free

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.imports cimport forget_requests
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.runtime.kinds cimport CLIENT
from gnats.core.runtime.quiesce cimport qs_retire
from gnats.core.subjects.subject cimport subject_has_wildcard
from gnats.core.subjects.sublist cimport Subscription, sub_subject
from gnats.includes.arrays cimport array_grow
from gnats.includes.atomics cimport load64
from gnats.includes.linux cimport stopwatch_ns

cdef extern from * nogil:
    """
    #include <stddef.h>
    #include <stdint.h>
    struct gnats_departure { void *client, *account, *sub; };
    /* Removals that this thread's batch has put off. */
    static __thread struct { struct gnats_departure *at; size_t n, cap; int64_t spent; } gnats_departures;
    """
    cdef struct Departure "gnats_departure":
        void *client      # borrowed Subscriber
        void *account     # borrowed Account; NULL: done
        void *sub

    cdef struct Departures:
        Departure *at
        size_t n
        size_t cap
        int64_t spent     # ns of searches in this batch

    Departures gnats_departures

cdef enum:
    FIRST = 64
    SEARCHING = 1000000   # ns of searches in a batch; beyond them wait for its end


cdef bint depart(Subscriber client, Account account, Subscription *s) noexcept nogil:
    cdef Departure *d
    # A client that is not started, or one of the server's own, may be in no batch.
    if load64(&account.nreverse) == 0 or client.kind != CLIENT or not client.started:
        return False
    if not subject_has_wildcard(sub_subject(s), s.subject_len):
        return False
    if gnats_departures.n == gnats_departures.cap and not array_grow(
            &gnats_departures.at, &gnats_departures.cap, FIRST, sizeof(Departure)):
        return False
    d = &gnats_departures.at[gnats_departures.n]
    gnats_departures.n += 1
    d.client = <void *> client
    d.account = <void *> account
    d.sub = s
    return True


cdef void remove_departed() noexcept nogil:
    if gnats_departures.n:
        remove_all()
    gnats_departures.spent = 0


cdef void remove_before_subscribing() noexcept nogil:
    cdef int64_t start
    if gnats_departures.n and gnats_departures.spent < SEARCHING:
        start = stopwatch_ns()
        remove_all()
        gnats_departures.spent += stopwatch_ns() - start


cdef void remove_all() noexcept nogil:
    cdef size_t i
    for i in range(gnats_departures.n):
        if gnats_departures.at[i].account != NULL:
            remove_from_account(gnats_departures.at + i, gnats_departures.n - i)
    free(gnats_departures.at)
    gnats_departures.at = NULL
    gnats_departures.n = gnats_departures.cap = 0


cdef void remove_from_account(Departure *first, size_t n) noexcept nogil:
    """Remove the subscriptions that are in the same account as the first. Search that account's responses once."""
    cdef void *account = first.account
    cdef Subscription *s
    cdef size_t i, count = 0
    for i in range(n):
        count += first[i].account == account
    if count > 1:
        forget_requests(<Subscriber> first.client, <Account> account, NULL)
    for i in range(n):
        if first[i].account != account:
            continue
        s = <Subscription *> first[i].sub
        (<Account> account).remove(s)
        if count == 1:
            forget_requests(<Subscriber> first.client, <Account> account, s)
        first[i].account = NULL
        qs_retire(s)
