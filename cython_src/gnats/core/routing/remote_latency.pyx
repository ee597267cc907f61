"""Requests of other servers whose answers are measured; see remote_latency.pxd."""
from libc.stdint cimport int64_t, uint64_t

from gnats.core.accounts.account cimport Account, account_charge
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.message cimport Message
from gnats.core.runtime.clock cimport monotonic_ns
from gnats.core.runtime.inbox cimport EV_ANSWERED, EV_TRACKED, Event
from gnats.core.runtime.slice cimport Slice
from gnats.includes.atomics cimport add64
from gnats.includes.text cimport put


cdef void note_request(Subscriber client, const Message *m, const Slice *reply) noexcept nogil:
    cdef Event *ev = client.inbox.new_event(
        EV_TRACKED, NULL, &(<Subscriber> m.origin).source, reply.n + 1 + m.subject.n)
    cdef char *p
    if ev == NULL:
        return
    add64(&client.tracked, 1)
    ev.a = <int64_t> client.cid
    ev.b = monotonic_ns()
    p = put(<char *> ev.data, reply.p, reply.n)
    p[0] = c' '
    put(p + 1, m.subject.p, m.subject.n)
    client.inbox.post_caused(ev, &(<Subscriber> m.origin).source, account_charge(<Account> m.account))


cdef void note_answer(Subscriber c, const Slice *subject) noexcept nogil:
    cdef Event *ev = c.inbox.new_event(EV_ANSWERED, NULL, &c.source, subject.n)
    if ev == NULL:
        return
    add64(&c.tracked, <uint64_t> -1)   # only its owner takes from it, and only what is there
    ev.a = <int64_t> c.cid
    ev.b = monotonic_ns()
    put(<char *> ev.data, subject.p, subject.n)
    c.inbox.post_caused(ev, &c.source, 0)
